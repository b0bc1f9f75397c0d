package tenancy

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/retention"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Config configures a Tenancy.
type Config struct {
	// Quotas returns a key's quotas. If nil, there are no quotas.
	Quotas func(keyID string) keys.Quotas
	// HostPorts returns the host's ports granted by a key. If nil, keys grant no ports.
	HostPorts func(keyID string) netpolicy.HostGrant
	// Alive reports whether a key is still valid. If nil, every key is.
	Alive func(keyID string) bool
	// Held returns the bytes of a tenant's uploads, which count against its disk quota. If nil, uploads do not count.
	Held func(tenant string) int64
	// Published lists snapshots that every tenant may fork. If nil, publishing is disabled.
	Published *Published
	// Secrets decides which secrets in snapshots are still valid. If nil, all are.
	Secrets sandbox.SecretSource
	Now     func() time.Time // nil means time.Now
	// Retention has the default rules for snapshots of sandboxes, and the tenants' maxima.
	Retention retention.Policy
}

// Tenancy is an engine with tenants. Its methods are safe for concurrent use.
type Tenancy struct {
	engine roles.Engine
	cfg    Config
	ledger ledger
}

// New adds tenants to an engine.
func New(e roles.Engine, c Config) *Tenancy {
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

// For returns the engine as visible to the context's principal.
func (t *Tenancy) For(ctx context.Context) *View {
	l := &lens{t, t.engine, principal.From(ctx)}
	sandboxes, snapshots, records := sandboxView{l}, snapshotView{l}, recordView{l}
	return &View{snapshots, roles.Engine{
		Snapshots: snapshots, Diffs: snapshots, Sandboxes: sandboxes, Branches: sandboxes, Receipts: records,
		Guests: sandboxes, Pools: records, Hosts: records, Networks: sandboxes, Labels: labelView{l},
	}}
}

// View is an engine for one principal. For the operator it passes calls to the engine unchanged.
type View struct {
	// own is for methods that only tenants' views have.
	own snapshotView
	// Engine holds the roles for the principal.
	roles.Engine
}

// Publish makes a snapshot public, or private again.
func (v *View) Publish(ctx context.Context, tag string, public bool) (sandbox.SnapshotInfo, error) {
	return v.own.publish(ctx, tag, public)
}

// UploadRoom returns an error if the principal may not upload now, because of its key or its disk quota.
func (v *View) UploadRoom(ctx context.Context) error { return v.own.uploadRoom(ctx) }

// KeyAlive reports whether the principal's key is still valid. A principal without a key always is.
func (v *View) KeyAlive() bool { return v.own.lens.keyAlive() }

// Roles of a View.
type (
	sandboxView  struct{ lens *lens }
	snapshotView struct{ lens *lens }
	recordView   struct{ lens *lens } // receipts and pools
	labelView    struct{ lens *lens }
)

// lens finds the objects visible to a principal and checks its quotas.
type lens struct {
	t      *Tenancy
	engine roles.Engine
	p      principal.Principal
}

// noSandbox is returned both for a missing sandbox and for another tenant's, so that callers cannot tell them
// apart.
func noSandbox(id string) error {
	return sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s not found", sandbox.Clip(id))
}

func noSnapshot(tag string) error {
	return sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonSnapshotNotFound, "snapshot %s not found", sandbox.Clip(tag))
}

// operatorOnly returns an error to tenants, for operations on all tenants or the host.
func (v *lens) operatorOnly(what string) error {
	if v.p.Operator() {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrForbidden, sandbox.ReasonOperatorOnly,
		"%s is the operator's: a tenant's key cannot", what)
}
