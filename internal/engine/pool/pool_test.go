package pool_test

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

func TestPoolsAreFilledUsedAndRefilled(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Snapshot(e, "b")
	if err := e.SetPool(t.Context(), "a", 5); err != nil {
		t.Fatal(err)
	}
	ready := func(n int) func() bool {
		return func() bool { return e.Pools()[0].Ready == n }
	}
	enginefake.Eventually(t, "full pool", ready(5))
	if r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "b", N: 3}); err != nil || r.PoolReady != 0 {
		t.Fatalf("the pool is of another tag: pool ready %d, %v", r.PoolReady, err)
	}
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 3})
	if err != nil || r.PoolReady != 5 {
		t.Fatalf("pool ready %d, %v", r.PoolReady, err)
	}
	for _, c := range r.Children {
		if c.Err != nil {
			t.Error(c.Err)
		}
	}
	enginefake.Eventually(t, "refilled pool", ready(5))

	// A shell that dies in the pool is replaced.
	old := shells(h, e)
	if err := unix.Kill(old[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "replacement of a dead shell", func() bool {
		now := shells(h, e)
		return ready(5)() && len(now) == 5 && !slices.Contains(now, old[0])
	})

	// If a shell dies when it is taken, the next one is tried.
	h.Fault("prepared-die", 2)
	h.Fork(e, "a", 3)
	enginefake.Eventually(t, "refilled pool", ready(5))
	h.Fault("prepared-die-slowly", 2)
	h.Fork(e, "a", 3)
	enginefake.Eventually(t, "refilled pool", ready(5))

	enginefake.WantError(t, e.SetPool(t.Context(), "nobody", 1), sandbox.ErrNotFound)
	enginefake.WantError(t, e.SetPool(t.Context(), "a", -1), sandbox.ErrInvalid)
	if err := e.SetPool(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	if !ready(2)() {
		t.Errorf("after it was made smaller: %+v", e.Pools())
	}
	h.Close(e)

	// The size is stored, and deleted with the snapshot.
	e = h.Open()
	enginefake.Eventually(t, "pool of the size that was set before", ready(2))
	for _, i := range e.List() {
		if err := e.Kill(t.Context(), i.ID); err != nil {
			t.Error(err)
		}
	}
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.Empty()
}

// Tags without a configured size share plain shells, if any are configured.
func TestPlainShellsAreShared(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Cfg.PoolSize = 2
	e := h.Open()
	h.Snapshot(e, "a")
	h.Snapshot(e, "b")
	enginefake.Eventually(t, "full pools", func() bool { p := e.Pools(); return p[0].Ready == 2 && p[1].Ready == 2 })
	if n := len(shells(h, e)); n != 2 {
		t.Errorf("there are %d shells", n)
	}
	if r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "b", N: 1}); err != nil || r.PoolReady != 2 || r.Children[0].Err != nil {
		t.Fatalf("fork into a plain shell: %+v, %v", r, err)
	}
}

// Shells of a snapshot must not be used for a later snapshot of the same tag.
func TestShellsOfADeletedSnapshotAreGone(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	before := enginefake.OpenFiles(t)
	if err := e.SetPool(t.Context(), "a", 3); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "full pool", func() bool { return e.Pools()[0].Ready == 3 })
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "end of the shells", func() bool { return len(shells(h, e)) == 0 })
	enginefake.Eventually(t, "closing of what they were prepared with", func() bool { return enginefake.OpenFiles(t) <= before })
	h.Snapshot(e, "a")
	if r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1}); err != nil || r.PoolReady != 0 || r.Children[0].Err != nil {
		t.Errorf("fork of the next one: %+v, %v", r, err)
	}
}

// shells returns the processes that are of no listed sandbox.
func shells(h *enginefake.Host, e *engine.Engine) (pids []int) {
	of := map[int]sandbox.Info{}
	for _, i := range e.List() {
		of[i.PID] = i
	}
	for _, pid := range h.Journalled() {
		if _, listed := of[pid]; !listed {
			pids = append(pids, pid)
		}
	}
	return pids
}
