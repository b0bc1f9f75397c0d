package tenancy

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Config is what a Tenancy is made of.
type Config struct {
	// Quotas are those of a key; nil: there are none.
	Quotas func(keyID string) keys.Quotas
	// HostPorts are the ports of the host that a key grants; nil: no key grants any.
	HostPorts func(keyID string) netpolicy.HostGrant
	// Alive reports whether a key still opens anything; nil: each does.
	Alive func(keyID string) bool
	// Held returns the bytes of a tenant's uploads, which count against its disk quota; nil: none.
	Held func(tenant string) int64
	// Published are the snapshots that all tenants may fork from; nil: none, and none can be.
	Published *Published
	Now       func() time.Time // nil: time.Now
}

// Tenancy is an engine for many. Its methods are safe for concurrent use.
type Tenancy struct {
	engine Engine
	cfg    Config
	ledger ledger
}

// New puts tenants over an engine.
func New(e Engine, c Config) *Tenancy {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Quotas == nil {
		c.Quotas = func(string) keys.Quotas { return keys.Quotas{} }
	}
	if c.HostPorts == nil {
		c.HostPorts = func(string) netpolicy.HostGrant { return netpolicy.HostGrant{} }
	}
	if c.Alive == nil {
		c.Alive = func(string) bool { return true }
	}
	if c.Held == nil {
		c.Held = func(string) int64 { return 0 }
	}
	return &Tenancy{engine: e, cfg: c, ledger: newLedger()}
}

// For is the engine as who asks in ctx may see it.
func (t *Tenancy) For(ctx context.Context) *View {
	l := &lens{t, t.engine, principal.From(ctx)}
	return &View{sandboxView{l}, snapshotView{l}, recordView{l}}
}

// View is an engine for one principal. For the operator it is the engine itself.
type View struct {
	sandboxView
	snapshotView
	recordView
}

// Parts of a View.
type (
	sandboxView  struct{ *lens }
	snapshotView struct{ *lens }
	recordView   struct{ *lens } // receipts and pools
)

// lens finds what is there for a principal, and says how much of it there may be.
type lens struct {
	t      *Tenancy
	engine Engine
	p      principal.Principal
}

// noSandbox is told of one that is not there and of one that is another's, in the same words.
func noSandbox(id string) error {
	return sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s not found", sandbox.Clip(id))
}

func noSnapshot(tag string) error {
	return sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonSnapshotNotFound, "snapshot %s not found", sandbox.Clip(tag))
}

// operatorOnly refuses what concerns all tenants, or the host.
func (v *lens) operatorOnly(what string) error {
	if v.p.Operator() {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrForbidden, sandbox.ReasonOperatorOnly,
		"%s is the operator's: a tenant's key cannot", what)
}
