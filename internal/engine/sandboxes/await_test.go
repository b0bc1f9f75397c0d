package sandboxes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// reasonOf returns the reason of an error.
func reasonOf(err error) sandbox.Reason {
	var told *sandbox.Error
	if !errors.As(err, &told) {
		return ""
	}
	return told.Reason()
}

// TestWaitersAreBounded makes requests wait for a sandbox while its turn is taken.
func TestWaitersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(Config{Waits: Waits{PerSandbox: 2, PerTenant: 3, Time: time.Minute},
			Elapsed: func() time.Duration { return 0 }})
		one := table.newSandbox("", sandbox.Identity{}, sandbox.Info{ID: "sb-1", Owner: "a"})
		other := table.newSandbox("", sandbox.Identity{}, sandbox.Info{ID: "sb-2", Owner: "a"})
		foreign := table.newSandbox("", sandbox.Identity{}, sandbox.Info{ID: "sb-3", Owner: "b"})
		for _, s := range []*Sandbox{one, other, foreign} {
			if _, err := s.Turn(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 4)
		wait := func(s *Sandbox) {
			go func() { _, err := s.Await(context.Background()); ended <- err }()
			synctest.Wait()
		}
		wait(one)
		wait(one)
		if _, err := one.Await(t.Context()); !errors.Is(err, sandbox.ErrBusy) || reasonOf(err) != sandbox.ReasonTransitionBusy {
			t.Errorf("one more for a sandbox: %v", err)
		}
		wait(other)
		if _, err := other.Await(t.Context()); reasonOf(err) != sandbox.ReasonTransitionBusy {
			t.Errorf("one more for a tenant: %v", err)
		}
		wait(foreign)
		for range 4 {
			if err := <-ended; !errors.Is(err, sandbox.ErrBusy) || reasonOf(err) != sandbox.ReasonTransitionSlow {
				t.Errorf("after its time: %v", err)
			}
		}
		if n := len(table.waiting.sandboxes) + len(table.waiting.tenants); n != 0 {
			t.Errorf("%d counts are left", n)
		}
	})
}
