package op_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/op"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

func TestChildrenAreDifferentFromEachOther(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
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
			v := h.Eval(e, c.Info.ID, what)
			if v == "" || seen[v] {
				t.Errorf("child %d: its %s %q is another's, too", i, what, v)
			}
			seen[v] = true
		}
		env := h.Eval(e, c.Info.ID, "env")
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
			h := enginefake.NewHost(t)
			h.Cfg.IdentityTimeout = 5 * time.Second
			h.Cfg.RestoreTimeout = 5 * time.Second
			e := h.Open()
			h.Snapshot(e, "a")
			h.Fault(fault, 3)
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
				enginefake.WantError(t, firstError(r), storeerr.ErrNotRestorable)
			}
			if ok != 17 || len(r.Children) != 20 || len(e.List()) != 17 {
				t.Errorf("%d of %d live, %d are listed", ok, len(r.Children), len(e.List()))
			}
			for _, i := range e.List() {
				if err := e.Kill(t.Context(), i.ID); err != nil {
					t.Error(err)
				}
			}
			h.Empty()
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
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("refuse", 2)
	h.Fork(e, "a", 2)
	h.Fault("reset", 2)
	h.Fork(e, "a", 2)
}

func TestForksThatCannotBegin(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
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
			enginefake.WantError(t, err, c.kind)
		})
	}
}

func TestALargeForkComesInLots(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
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
			h := enginefake.NewHost(t)
			e := h.Open()
			h.Snapshot(e, "a")
			before := enginefake.OpenFiles(t)
			h.Fault(fault, 1)
			wish := errors.New("changed my mind")
			ctx, cancel := context.WithCancelCause(t.Context())
			used := h.UsedUp(fault)
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
			h.Empty()
			if l := e.List(); len(l) != 0 {
				t.Errorf("listed: %v", l)
			}
			enginefake.Eventually(t, "return of all descriptors", func() bool { return enginefake.OpenFiles(t) <= before })
		})
	}
}
