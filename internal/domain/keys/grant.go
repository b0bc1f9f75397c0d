package keys

import (
	"fmt"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// A Denial is why a key cannot grant another key. Scope is true if the key lacks a scope.
type Denial struct {
	Scope bool
	Text  string
}

func (d *Denial) Error() string { return d.Text }

// CheckGrant returns a *Denial unless the key own may create a key with this spec. Its scopes, lifetime, quotas
// and host ports must not exceed own's, and a tenant's key stays within its tenant. Every operation that returns
// a key's text calls it.
func (own Key) CheckGrant(s Spec) error {
	deny := func(scope bool, format string, args ...any) error {
		return &Denial{scope, fmt.Sprintf(format, args...)}
	}
	ports, err := netpolicy.ParseHostGrant(s.HostPorts)
	if err != nil {
		return fmt.Errorf("host_ports: %w: %w", err, ErrInvalid)
	}
	switch {
	case !own.Scopes.Has(s.Scopes):
		return deny(true, "a key cannot give scopes that it lacks: it has %s", own.Scopes)
	case own.Tenant != "" && s.Tenant != own.Tenant:
		return deny(false, "a tenant's key gives keys of its own tenant only")
	case !own.Expires.IsZero() && (s.Expires.IsZero() || s.Expires.After(own.Expires)):
		return deny(false, "a key cannot give a key that expires later than itself")
	case s.Tenant == own.Tenant && !s.Quotas.within(own.Quotas):
		return deny(false, "a key cannot give a key with wider quotas than its own")
	case !own.HostGrant().Covers(ports):
		return deny(false, "a key cannot grant ports of the host that it lacks: it has %s", own.HostGrant())
	}
	return nil
}

// within reports whether no field of q exceeds bound.
func (q Quotas) within(bound Quotas) bool {
	narrow := func(v, most int) bool { return most == 0 || v > 0 && v <= most }
	return narrow(q.Sandboxes, bound.Sandboxes) && narrow(q.MemoryMiB, bound.MemoryMiB) &&
		narrow(q.ForksPerMinute, bound.ForksPerMinute) && narrow(q.DiskMiB, bound.DiskMiB) &&
		narrow(q.RequestsPerSecond, bound.RequestsPerSecond)
}

// Spec returns the spec of a key like this one.
func (k Key) Spec() Spec {
	return Spec{Name: k.Name, Tenant: k.Tenant, Scopes: k.Scopes, Quotas: k.Quotas, Expires: k.Expires,
		HostPorts: k.HostPorts}
}
