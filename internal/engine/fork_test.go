package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/op"
	"github.com/forkd/forkd/internal/engine/pool"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

func TestChildrenAreDifferentFromEachOther(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	told := make(chan sandbox.Child, 8)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{
		Tag: "a", N: 8, Env: map[string]string{"COLOUR": "red"}, Each: func(c sandbox.Child) { told <- c },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 8 {
		t.Errorf("told of %d children", len(told))
	}
	if first := <-told; first.Info.Ready >= r.ReadyWall {
		t.Errorf("told of the first, ready after %s, when the last was, after %s", first.Info.Ready, r.ReadyWall)
	}
	seen := map[string]bool{}
	for i, c := range r.Children {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		if c.Index != i+1 || c.Info.Index != i+1 || c.Info.Status != sandbox.StatusRunning || c.Info.PID == 0 || c.Info.Hostname != c.Info.ID {
			t.Errorf("child %d: %+v", i, c)
		}
		for _, what := range []string{"entropy", "machine_id", "sandbox_id"} {
			v := h.eval(e, c.Info.ID, what)
			if v == "" || seen[v] {
				t.Errorf("child %d: its %s %q is another's, too", i, what, v)
			}
			seen[v] = true
		}
		env := h.eval(e, c.Info.ID, "env")
		for _, want := range []string{"COLOUR:red", "FORKD_PARENT:a", "FORKD_SANDBOX_ID:" + c.Info.ID} {
			if !strings.Contains(env, want) {
				t.Errorf("child %d: env is %s, want %s", i, env, want)
			}
		}
		if c.Info.Resumed <= 0 || c.Info.Ready < c.Info.Resumed {
			t.Errorf("child %d: resumed after %s, ready after %s", i, c.Info.Resumed, c.Info.Ready)
		}
	}
	if r.ArmedWall <= 0 || r.ReadyWall < r.ArmedWall {
		t.Errorf("resumed %s, ready %s", r.ArmedWall, r.ReadyWall)
	}
	if got := e.List(); len(got) != 8 {
		t.Errorf("%d are listed", len(got))
	}
}

func TestEachChildSucceedsOrFailsOnItsOwn(t *testing.T) {
	for fault, text := range map[string]string{
		"spawn":          "no KVM today",
		"restore-fail":   "KVM said no",
		"restore-die":    "its VM has ended: ",
		"identity-clone": "random state was not reseeded",
		"identity-die":   "kernel panicked: out of luck",
		"identity-hang":  "guest did not confirm its identity after",
		"restore-hang":   "restore timed out after",
	} {
		t.Run(fault, func(t *testing.T) {
			h := newHost(t)
			h.cfg.IdentityTimeout = 5 * time.Second
			h.cfg.RestoreTimeout = 5 * time.Second
			e := h.open()
			h.snapshot(e, "a")
			h.fault(fault, 3)
			r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 20})
			if err != nil {
				t.Fatal(err)
			}
			ok := 0
			for _, c := range r.Children {
				if c.Err == nil {
					ok++
				} else if !strings.Contains(c.Err.Error(), text) {
					t.Errorf("child %d: %v, want %q", c.Index, c.Err, text)
				}
			}
			if fault == "restore-fail" {
				wantError(t, firstError(r), storeerr.ErrNotRestorable)
			}
			if ok != 17 || len(r.Children) != 20 || len(e.List()) != 17 {
				t.Errorf("%d of %d live, %d are listed", ok, len(r.Children), len(e.List()))
			}
			for _, i := range e.List() {
				if err := e.Kill(t.Context(), i.ID); err != nil {
					t.Error(err)
				}
			}
			h.empty()
		})
	}
}

func firstError(r sandbox.ForkResult) error {
	for _, c := range r.Children {
		if c.Err != nil {
			return c.Err
		}
	}
	return nil
}

func TestAConnectionThatIsDroppedAfterTheRestoreIsTriedAgain(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	h.fault("refuse", 2)
	h.fork(e, "a", 2)
	h.fault("reset", 2)
	h.fork(e, "a", 2)
}

func TestForksThatCannotBegin(t *testing.T) {
	h := newHost(t)
	e := h.open()
	for name, c := range map[string]struct {
		req  sandbox.ForkRequest
		kind error
	}{
		"no such tag": {sandbox.ForkRequest{Tag: "nobody", N: 1}, sandbox.ErrNotFound},
		"bad tag":     {sandbox.ForkRequest{Tag: "../x", N: 1}, sandbox.ErrInvalid},
		"none":        {sandbox.ForkRequest{Tag: "a"}, sandbox.ErrInvalid},
		"too many":    {sandbox.ForkRequest{Tag: "a", N: sandbox.MaxFork + 1}, sandbox.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.Fork(t.Context(), c.req)
			wantError(t, err, c.kind)
		})
	}
}

func TestALargeForkComesInLots(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	for n, inLots := range map[int]bool{op.ForkLot: false, op.ForkLot + 1: true} {
		r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: n})
		if err != nil {
			t.Fatal(err)
		}
		first := r.ReadyWall
		for i, c := range r.Children {
			if c.Err != nil || c.Index != i+1 {
				t.Fatalf("child %d of %d: index %d, %v", i+1, n, c.Index, c.Err)
			}
			first = min(first, c.Info.Ready)
		}
		if begun := first < r.ArmedWall; begun != inLots {
			t.Errorf("%d children: the first ready after %s, the last restored after %s", n, first, r.ArmedWall)
		}
		for _, c := range r.Children {
			if err := e.Kill(t.Context(), c.Info.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestACancelledForkLeavesNothing(t *testing.T) {
	for _, fault := range []string{"restore-hang", "identity-hang"} {
		t.Run(fault, func(t *testing.T) {
			h := newHost(t)
			e := h.open()
			h.snapshot(e, "a")
			before := openFiles(t)
			h.fault(fault, 1)
			wish := errors.New("changed my mind")
			ctx, cancel := context.WithCancelCause(t.Context())
			used := h.usedUp(fault)
			go func() {
				for !used() {
					time.Sleep(time.Millisecond)
				}
				cancel(wish)
			}()
			_, err := e.Fork(ctx, sandbox.ForkRequest{Tag: "a", N: 6})
			if !errors.Is(err, wish) {
				t.Errorf("got %v", err)
			}
			h.empty()
			if l := e.List(); len(l) != 0 {
				t.Errorf("listed: %v", l)
			}
			eventually(t, "return of all descriptors", func() bool { return openFiles(t) <= before })
		})
	}
}

func TestPoolsAreFilledUsedAndRefilled(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	h.snapshot(e, "b")
	if err := e.SetPool(t.Context(), "a", 5); err != nil {
		t.Fatal(err)
	}
	ready := func(n int) func() bool {
		return func() bool { return e.Pools()[0].Ready == n }
	}
	eventually(t, "full pool", ready(5))
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
	eventually(t, "refilled pool", ready(5))

	// A shell that dies in the pool is replaced.
	old := e.pools.Shells()
	if err := old[0].Proc.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "replacement of a dead shell", func() bool {
		now := e.pools.Shells()
		return len(now) == 5 && !slices.Contains(now, old[0])
	})

	// If a shell dies when it is taken, the next one is tried.
	h.fault("prepared-die", 2)
	h.fork(e, "a", 3)
	eventually(t, "refilled pool", ready(5))
	h.fault("prepared-die-slowly", 2)
	h.fork(e, "a", 3)
	eventually(t, "refilled pool", ready(5))

	wantError(t, e.SetPool(t.Context(), "nobody", 1), sandbox.ErrNotFound)
	wantError(t, e.SetPool(t.Context(), "a", -1), sandbox.ErrInvalid)
	if err := e.SetPool(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	if !ready(2)() {
		t.Errorf("after it was made smaller: %+v", e.Pools())
	}
	h.close(e)

	// The size is stored, and deleted with the snapshot.
	e = h.open()
	eventually(t, "pool of the size that was set before", ready(2))
	for _, i := range e.List() {
		if err := e.Kill(t.Context(), i.ID); err != nil {
			t.Error(err)
		}
	}
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.empty()
}

// Tags without a configured size share plain shells, if any are configured.
func TestPlainShellsAreShared(t *testing.T) {
	h := newHost(t)
	h.cfg.PoolSize = 2
	e := h.open()
	h.snapshot(e, "a")
	h.snapshot(e, "b")
	eventually(t, "full pools", func() bool { p := e.Pools(); return p[0].Ready == 2 && p[1].Ready == 2 })
	if n := len(e.pools.Shells()); n != 2 {
		t.Errorf("there are %d shells", n)
	}
	if r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "b", N: 1}); err != nil || r.PoolReady != 2 || r.Children[0].Err != nil {
		t.Fatalf("fork into a plain shell: %+v, %v", r, err)
	}
}

// A snapshot that cannot prepare shells gets plain ones, and its forks return the error.
func TestAPoolOfASnapshotThatCannotBeRestored(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	h.fault("restore-fail", pool.Refillers) // each may work on one
	if err := e.SetPool(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pool of plain shells", func() bool { return e.Pools()[0].Ready == 2 })
	for _, m := range e.pools.Shells() {
		if m.Prepared {
			t.Error("a shell was prepared")
		}
	}
	h.fault("restore-fail", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})
	if err != nil || !errors.Is(r.Children[0].Err, storeerr.ErrNotRestorable) {
		t.Errorf("fork: %+v, %v", r, err)
	}
}

// Shells of a snapshot must not be used for a later snapshot of the same tag.
func TestShellsOfADeletedSnapshotAreGone(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	before := openFiles(t)
	if err := e.SetPool(t.Context(), "a", 3); err != nil {
		t.Fatal(err)
	}
	eventually(t, "full pool", func() bool { return e.Pools()[0].Ready == 3 })
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if left := e.pools.Shells(); len(left) > 0 {
		t.Errorf("%d shells are left", len(left))
	}
	eventually(t, "closing of what they were prepared with", func() bool { return openFiles(t) <= before })
	h.snapshot(e, "a")
	if r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1}); err != nil || r.PoolReady != 0 || r.Children[0].Err != nil {
		t.Errorf("fork of the next one: %+v, %v", r, err)
	}
}
