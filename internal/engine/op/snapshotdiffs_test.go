package op_test

import (
	"context"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

// compared returns an engine with the snapshot "a", and "b" on top of it.
func compared(t *testing.T) (*enginefake.Host, *engine.Engine) {
	t.Helper()
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	if _, err := e.DeriveSnapshot(t.Context(), sandbox.DeriveRequest{Tag: "b", From: "a", Exec: []string{"echo"}}, nil); err != nil {
		t.Fatal(err)
	}
	return h, e
}

func TestDiffOfSnapshots(t *testing.T) {
	h, e := compared(t)
	for _, c := range []struct {
		before, after  string
		added, removed int
	}{{"a", "b", 1, 0}, {"b", "a", 0, 1}, {"a", "a", 0, 0}} {
		d, err := e.DiffSnapshots(t.Context(), sandbox.DiffRequest{Before: c.before, After: c.after})
		if err != nil {
			t.Fatal(err)
		}
		f := d.Files
		if d.Before != c.before || d.After != c.after || f.Counts.Added != c.added || f.Counts.Removed != c.removed || f.Counts.Changed != 0 || !f.Complete {
			t.Errorf("%s, %s: %+v", c.before, c.after, d)
		}
		if len(f.Added) > 0 && (f.Added[0].Path != "/b" || f.Added[0].Size != 3) {
			t.Errorf("%+v", f.Added)
		}
	}
	if left := e.List(); len(left) > 0 {
		t.Errorf("left behind: %+v", left)
	}
	h.Empty()
}

// On every failure the children are gone again.
func TestADiffThatFails(t *testing.T) {
	h, e := compared(t)
	for _, c := range []struct {
		name, fault, after string
		limit              int
		kind               error
		says               string
	}{
		{name: "no such snapshot", after: "none", kind: sandbox.ErrNotFound, says: "none"},
		{name: "no tag", after: "../b", kind: sandbox.ErrInvalid, says: "../b"},
		{name: "a limit that is too high", limit: sandbox.MaxDiffList + 1, kind: sandbox.ErrInvalid, says: "limit is 10001"},
		{name: "a child that cannot be made", fault: "restore-fail", kind: storeerr.ErrNotRestorable, says: "KVM said no"},
		{name: "a child that dies", fault: "inventory-die", kind: sandbox.ErrGuestGone},
		{name: "an agent of an older version", fault: "inventory-none", kind: sandbox.ErrConflict, says: "too old"},
		{name: "an account that breaks off", fault: "inventory-break", kind: sandbox.ErrGuestGone, says: "breaks off"},
		{name: "an account that lies", fault: "inventory-lie", kind: sandbox.ErrGuestGone, says: "comes after"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.fault != "" {
				h.Fault(c.fault, 1)
			}
			if c.after == "" {
				c.after = "b"
			}
			_, err := e.DiffSnapshots(t.Context(), sandbox.DiffRequest{Before: "a", After: c.after, Limit: c.limit})
			enginefake.WantError(t, err, c.kind, c.says)
			h.Empty()
		})
	}
	h.Fault("inventory-hang", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := e.DiffSnapshots(ctx, sandbox.DiffRequest{Before: "a", After: "b"})
	enginefake.WantError(t, err, sandbox.ErrTimeout)
	h.Empty()
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{Cascade: true}); err != nil {
		t.Errorf("the snapshots are still in use: %v", err)
	}
}
