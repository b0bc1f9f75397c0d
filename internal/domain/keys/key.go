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

// Prefix begins a key's text, followed by secretHex digits. E2B clients accept this form.
const (
	Prefix    = "e2b_"
	secretHex = 40
)

var (
	idPattern   = regexp.MustCompile(`^k[0-9a-f]{12}$`)
	namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	// A tenant's tags begin with its name and a dash, so the name has no dash.
	tenantPattern = regexp.MustCompile(`^[a-z0-9_]{1,24}$`)
)

// IsTenant reports whether a tenant can have that name.
func IsTenant(name string) bool { return tenantPattern.MatchString(name) }

// Errors that callers branch on.
var (
	ErrNotFound = errors.New("not found")
	ErrInvalid  = errors.New("invalid key")
	ErrTaken    = errors.New("the tenant has a key with this name")
)

// Quotas limit a tenant's use with a key. 0 means no limit.
type Quotas struct {
	Sandboxes      int `json:"sandboxes,omitempty"`        // concurrent sandboxes of the whole tenant
	MemoryMiB      int `json:"memory_mib,omitempty"`       // guest memory of the whole tenant
	ForksPerMinute int `json:"forks_per_minute,omitempty"` // children requested with this key
	DiskMiB        int `json:"disk_mib,omitempty"`         // size of the tenant's snapshots
	// RequestsPerSecond limits all requests with this key.
	RequestsPerSecond int `json:"requests_per_second,omitempty"`
}

// maxQuota exceeds the resources of any host.
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

// Spec describes a key to create.
type Spec struct {
	Name    string
	Tenant  string // empty for the operator's own key
	Scopes  principal.Scopes
	Quotas  Quotas
	Expires time.Time // zero if it never expires
	// HostPorts are the host's ports, PORT or FIRST-LAST, that the key's policies may name. An empty list
	// allows no ports.
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

// Key holds a key's stored fields. It is a copy. Times are in whole seconds.
type Key struct {
	ID       string
	Name     string
	Tenant   string // empty for the operator
	Scopes   principal.Scopes
	Quotas   Quotas
	Created  time.Time
	Expires  time.Time // zero if it never expires
	LastUsed time.Time // to the hour; zero if never used
	Revoked  time.Time // zero if it is not revoked
	// HostPorts are as in a Spec. The slice is not modified.
	HostPorts []string
}

// HostGrant returns the host's ports granted by the key.
func (k Key) HostGrant() netpolicy.HostGrant {
	g, err := netpolicy.ParseHostGrant(k.HostPorts)
	if err != nil { // it was validated before: grant no ports instead of some
		return netpolicy.HostGrant{}
	}
	return g
}

// Principal returns the principal of a request with this key.
func (k Key) Principal() principal.Principal {
	return principal.Principal{Name: k.Name, KeyID: k.ID, Tenant: k.Tenant, Scopes: k.Scopes}
}

// Dead returns why the key is not valid at a time. It returns an empty string if the key is valid.
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

// digest is the stored hash of a key's text. One round of SHA-256 is enough: the text has 160 random bits, so a
// dictionary attack, which slow hashes protect against, is not possible. The hash is also computed for each
// request.
type digest [sha256.Size]byte

func digestOf(text string) digest { return sha256.Sum256([]byte(text)) }

func (d digest) String() string { return hex.EncodeToString(d[:]) }
