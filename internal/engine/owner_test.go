package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/store/receipt"
)

// as returns a context with a tenant's key.
func as(ctx context.Context, tenant string) context.Context {
	return principal.With(ctx, principal.Principal{Name: "k", KeyID: "k1", Tenant: tenant, Scopes: principal.All})
}

// Owners are stored on disk with all derived objects. Over the real engine, tenants do not see each
// other's objects, before and after the end of the daemon.
func TestOwnersOutliveTheDaemon(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	acme, evil := as(t.Context(), "acme"), as(t.Context(), "evil")
	over := func(e *engine.Engine, ctx context.Context) *tenancy.View {
		return tenancy.New(e.Roles(), tenancy.Config{}).For(ctx)
	}
	v := over(e, acme)
	for asked, want := range map[int]int{0: enginefake.Shape.MemoryMiB, 64: 64} { // for quotas; 0: the image's
		if mib, err := e.ParentMemoryMiB(acme, sandbox.CreateRequest{Image: "tiny", MemoryMiB: asked}); err != nil || mib != want {
			t.Errorf("a parent with memory_mib %d has %d MiB, %v; want %d", asked, mib, err, want)
		}
	}
	if _, err := v.Snapshots.CreateSnapshot(acme, sandbox.CreateRequest{Tag: "a", Image: "tiny"}, nil); err != nil {
		t.Fatal(err)
	}
	forked, err := v.Sandboxes.Fork(acme, sandbox.ForkRequest{Tag: "a", N: 2})
	if err != nil || forked.Children[0].Err != nil {
		t.Fatal(err, forked)
	}
	id := forked.Children[0].Info.ID
	branch, err := v.Branches.Branch(acme, sandbox.BranchRequest{SandboxID: id, Tag: "b", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	if branch.Tag != "acme-b" || branch.Fork.Children[0].Info.Owner != "acme" || branch.Snapshot.Owner != "acme" {
		t.Errorf("branched to %+v", branch)
	}
	if _, err := v.Branches.Rollback(acme, id, "a"); err != nil {
		t.Error(err)
	}
	if _, err := v.Snapshots.CompactSnapshot(acme, "b", "c", nil); err != nil {
		t.Error(err)
	}
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: id, Tag: "operators"}); err != nil { // stays acme's
		t.Error(err)
	}
	h.Close(e)
	e = h.Open()
	v = over(e, acme)
	if n, mib := e.Holdings("acme"); n != 3 || mib == 0 || len(v.Sandboxes.List()) != 3 {
		t.Errorf("after the daemon's end acme has %d sandboxes, %d MiB; listed %d", n, mib, len(v.Sandboxes.List()))
	}
	for _, tag := range []string{"acme-a", "acme-b", "acme-c", "operators"} {
		if b, err := e.SnapshotBrief(tag); err != nil || b.Owner != "acme" || b.ContentHash == "" || b.MemoryMiB == 0 {
			t.Errorf("%s: %+v, %v", tag, b, err)
		}
		notThere(t, over(e, evil), tag, id)
	}
	if rs, err := v.Receipts.Receipts(receipt.Filter{Limit: 100}); err != nil || len(rs) < 5 {
		t.Errorf("%d receipts, %v", len(rs), err)
	}
	if rs, err := over(e, evil).Receipts.Receipts(receipt.Filter{Limit: 100}); err != nil || len(rs) != 0 {
		t.Errorf("evil reads %d receipts, %v", len(rs), err)
	}
}

// notThere checks that every operation on another tenant's objects fails.
func notThere(t *testing.T, v *tenancy.View, tag, id string) {
	t.Helper()
	ctx := t.Context()
	_, forks := v.Sandboxes.Fork(ctx, sandbox.ForkRequest{Tag: tag, N: 1})
	_, branches := v.Branches.Branch(ctx, sandbox.BranchRequest{SandboxID: id, Tag: "x"})
	_, rolls := v.Branches.Rollback(ctx, id, tag)
	_, infos := v.Snapshots.SnapshotInfo(ctx, tag)
	_, verifies := v.Snapshots.VerifySnapshot(ctx, tag)
	_, diffs := v.Diffs.DiffSnapshots(ctx, sandbox.DiffRequest{Before: tag, After: tag})
	_, derives := v.Snapshots.DeriveSnapshot(ctx, sandbox.DeriveRequest{Tag: "x", From: tag, Exec: []string{"true"}}, nil)
	_, execs := v.Guests.Exec(ctx, id, sandbox.ExecRequest{Args: []string{"true"}})
	_, dials := v.Guests.DialPort(ctx, id, 80)
	_, agents := v.Guests.DialAgent(ctx, id)
	_, consoles := v.Sandboxes.Console(id)
	_, receipts := v.Receipts.Receipt(receipt.OfSandbox, id)
	_, flows := v.Networks.Flows(ctx, id)
	for name, err := range map[string]error{"fork": forks, "branch": branches, "rollback": rolls, "info": infos, "verify": verifies,
		"diff": diffs, "derive": derives, "exec": execs, "port": dials, "agent": agents, "console": consoles, "receipt": receipts,
		"flows": flows, "kill": v.Sandboxes.Kill(ctx, id), "delete": v.Snapshots.DeleteSnapshot(ctx, tag, sandbox.DeleteOptions{Force: true}),
		"pool": v.Pools.SetPool(ctx, tag, 1)} {
		if !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%s of %s: %v", name, tag, err)
		}
	}
	if l, err := v.Snapshots.ListSnapshots(ctx); err != nil || len(l) != 0 || len(v.Sandboxes.List()) != 0 || len(v.Pools.Pools()) != 0 {
		t.Errorf("listed: %v, %v", l, err)
	}
}
