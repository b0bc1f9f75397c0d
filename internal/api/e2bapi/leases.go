package e2bapi

import (
	"context"

	"github.com/forkd/forkd/internal/api/e2bapi/lease"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// leases keep the lives of sandboxes for an engine without deadlines. Sandboxes end, and cannot be
// paused. The deadlines are in the records, so they survive the daemon.
type leases struct {
	h      *Handler
	keeper *lease.Keeper
}

func newLeases(h *Handler) *leases {
	l := &leases{h: h}
	l.keeper = lease.New(l.end, h.opt.Now)
	return l
}

func (l *leases) run(ctx context.Context) {
	for _, r := range l.h.opt.Records.All() {
		l.keeper.Set(r.ID, r.End)
	}
	l.keeper.Run(ctx)
}

// end kills a sandbox at its deadline, unless the deadline was moved meanwhile.
func (l *leases) end(ctx context.Context, id string) {
	rec, ok := l.h.opt.Records.Get(id)
	if !ok || rec.End.IsZero() {
		return
	}
	if rec.End.After(l.h.opt.Now()) {
		l.keeper.Set(id, rec.End)
		return
	}
	if err := l.h.opt.Engine.Kill(ctx, id); err != nil && !isNotFound(err) {
		l.h.opt.Log.Error("end a sandbox at its timeout", "sandbox", id, "error", err)
		return
	}
	l.h.forget(id)
}

func (l *leases) forget(id string) { l.keeper.Set(id, lifeEnd) }

var lifeEnd = Life{}.End

// SetLife implements Lives. The caller writes the record.
func (l *leases) SetLife(_ context.Context, id string, life Life) error {
	l.keeper.Set(id, life.End)
	return nil
}

func (l *leases) Pause(context.Context, string, bool) error { return errNoPause() }

func (l *leases) Resume(context.Context, string) error { return errNoPause() }

func (l *leases) Settle(context.Context, string) error { return nil }

func (l *leases) Wake(context.Context, string) error { return errNoPause() }

func (l *leases) Touch(string) {}

func errNoPause() error {
	return sandbox.Errorf(sandbox.ErrUnsupported, "", "pausing sandboxes is not supported by this server")
}
