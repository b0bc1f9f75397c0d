package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Prefix begins a key's text; secretHex digits follow: what clients of E2B take for a key.
const (
	Prefix    = "e2b_"
	secretHex = 40
)

var (
	idPattern   = regexp.MustCompile(`^k[0-9a-f]{12}$`)
	namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	// A tenant's tags begin with its name and a dash, so that there is no dash in it.
	tenantPattern = regexp.MustCompile(`^[a-z0-9_]{1,24}$`)
)

// IsTenant reports whether a tenant can have that name.
func IsTenant(name string) bool { return tenantPattern.MatchString(name) }

// Errors that callers branch on.
var (
	ErrNotFound = errors.New("not found")
	ErrInvalid  = errors.New("invalid key")
	ErrTaken    = errors.New("a key of that tenant has that name")
)

// Quotas bound what a tenant may have when it asks with a key. 0 is no bound.
type Quotas struct {
	Sandboxes      int `json:"sandboxes,omitempty"`        // that there are at once, of the whole tenant
	MemoryMiB      int `json:"memory_mib,omitempty"`       // of their guests' memory, of the whole tenant
	ForksPerMinute int `json:"forks_per_minute,omitempty"` // children asked for with this key
	DiskMiB        int `json:"disk_mib,omitempty"`         // that the tenant's snapshots take
	// RequestsPerSecond bounds requests of any kind with this key.
	RequestsPerSecond int `json:"requests_per_second,omitempty"`
}

// maxQuota is more than any host has of anything.
const maxQuota = 1 << 30

func (q Quotas) validate() error {
	for name, v := range map[string]int{"sandboxes": q.Sandboxes, "memory_mib": q.MemoryMiB,
		"forks_per_minute": q.ForksPerMinute, "disk_mib": q.DiskMiB, "requests_per_second": q.RequestsPerSecond} {
		if v < 0 || v > maxQuota {
			return fmt.Errorf("%w: %s is %d, want 0 to %d", ErrInvalid, name, v, maxQuota)
		}
	}
	return nil
}

// Spec is what a key is made of.
type Spec struct {
	Name    string
	Tenant  string // empty: the operator's own key
	Scopes  principal.Scopes
	Quotas  Quotas
	Expires time.Time // zero: never
	// HostPorts are the ports of the host, PORT or FIRST-LAST, that its policies may name; empty: none.
	HostPorts []string
}

func (s Spec) validate() error {
	switch {
	case !namePattern.MatchString(s.Name):
		return fmt.Errorf("%w: name %.80q: want 1 to 64 letters, digits, - or _", ErrInvalid, s.Name)
	case s.Tenant != "" && !IsTenant(s.Tenant):
		return fmt.Errorf("%w: tenant %.80q: want 1 to 24 small letters, digits or _", ErrInvalid, s.Tenant)
	case s.Scopes == 0 || !principal.All.Has(s.Scopes):
		return fmt.Errorf("%w: scopes: want one or more of %s", ErrInvalid, principal.All)
	case s.Tenant == "" && s.Quotas != (Quotas{RequestsPerSecond: s.Quotas.RequestsPerSecond}):
		return fmt.Errorf("%w: the operator's own key has no quotas: name a tenant", ErrInvalid)
	}
	if _, err := netpolicy.ParseHostGrant(s.HostPorts); err != nil {
		return fmt.Errorf("%w: host_ports: %w", ErrInvalid, err)
	}
	return s.Quotas.validate()
}

// Key is what is kept of a key. It is a copy. Times are of whole seconds.
type Key struct {
	ID       string
	Name     string
	Tenant   string // empty: the operator's
	Scopes   principal.Scopes
	Quotas   Quotas
	Created  time.Time
	Expires  time.Time // zero: never
	LastUsed time.Time // to the hour; zero: never
	Revoked  time.Time // zero: it is not
	// HostPorts are as in a Spec. The slice is never changed.
	HostPorts []string
}

// HostGrant returns the ports of the host that the key grants.
func (k Key) HostGrant() netpolicy.HostGrant {
	g, err := netpolicy.ParseHostGrant(k.HostPorts)
	if err != nil { // it was validated: grant nothing rather than a part
		return netpolicy.HostGrant{}
	}
	return g
}

// Principal is who asks with the key.
func (k Key) Principal() principal.Principal {
	return principal.Principal{Name: k.Name, KeyID: k.ID, Tenant: k.Tenant, Scopes: k.Scopes}
}

// Dead says why a key opens nothing at a time; empty: it does.
func (k Key) Dead(now time.Time) string {
	switch {
	case !k.Revoked.IsZero():
		return "revoked"
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return "expired"
	}
	return ""
}

// Looks reports whether a text has a key's form.
func Looks(text string) bool {
	secret, is := strings.CutPrefix(text, Prefix)
	if !is || len(secret) != secretHex {
		return false
	}
	for _, c := range []byte(secret) {
		if c < '0' || c > '9' && c < 'a' || c > 'f' {
			return false
		}
	}
	return true
}

// digest is what is kept of a key's text. One round of SHA-256 is enough: the text has 160
// random bits, so there is no list of likely ones to try, which is what slow hashes are
// against; and it is computed with each request.
type digest [sha256.Size]byte

func digestOf(text string) digest { return sha256.Sum256([]byte(text)) }

func (d digest) String() string { return hex.EncodeToString(d[:]) }
