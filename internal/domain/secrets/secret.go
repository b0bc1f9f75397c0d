package secrets

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Limits of a store.
const (
	MaxValue    = 64 << 10 // bytes of a value
	MaxPerOwner = 256      // secrets of a tenant
	maxMetadata = 16       // entries
	maxMetaText = 256      // bytes of a name or value in the metadata
)

// Errors that callers branch on.
var (
	ErrNotFound   = errors.New("not found")
	ErrInvalid    = errors.New("invalid secret")
	ErrExists     = errors.New("exists")
	ErrFull       = errors.New("the tenant has the most secrets it can have")
	ErrUnreadable = errors.New("cannot be read")
	// ErrNoKey is returned by a store without a key.
	ErrNoKey = errors.New("this daemon keeps no secrets: it was started without a key for them")
)

var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// CheckName returns an error if no secret can have the name.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%w: name %.80q: want 1 to 64 letters, digits, - or _, and a letter or _ first", ErrInvalid, name)
	}
	return nil
}

// Secret describes a secret, without its value. It is a copy.
type Secret struct {
	ID      string // never used for another secret, also of another tenant
	Tenant  string // empty for the operator
	Name    string
	Version int // from 1, grows with each new value
	// Metadata is the client's own. The map is not modified.
	Metadata map[string]string
	Created  time.Time
	Updated  time.Time // time of its current value
	// Damage is why its value cannot be read; empty if it can.
	Damage string
}

// Change sets a secret.
type Change struct {
	Tenant, Name string
	Value        []byte
	// Metadata replaces the secret's metadata, unless it is nil.
	Metadata map[string]string
	// New refuses a secret that exists.
	New bool
	// Keep keeps the current value, for a change of metadata.
	Keep bool
}

func (c Change) validate() error {
	if err := CheckName(c.Name); err != nil {
		return err
	}
	if n := len(c.Value); !c.Keep && (n == 0 || n > MaxValue) {
		return fmt.Errorf("%w: a value of %d bytes: want 1 to %d", ErrInvalid, n, MaxValue)
	}
	return checkMetadata(c.Metadata)
}

func checkMetadata(m map[string]string) error {
	if len(m) > maxMetadata {
		return fmt.Errorf("%w: %d entries of metadata: want at most %d", ErrInvalid, len(m), maxMetadata)
	}
	odd := func(s string) bool { return len(s) > maxMetaText || strings.ContainsFunc(s, unicode.IsControl) }
	for k, v := range m {
		if k == "" || odd(k) || odd(v) {
			return fmt.Errorf("%w: metadata %.40q: want at most %d printable characters each", ErrInvalid, k, maxMetaText)
		}
	}
	return nil
}
