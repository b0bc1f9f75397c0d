package cut

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/vm/vmm"
)

// capture plays a VMM. It counts the guests that are paused at the same time.
func capture(c *Cut, i int, paused *atomic.Int32, most *atomic.Int32) error {
	defer c.Leave(i)
	m := Join(c.File(i))
	if err := m.Ready(); err != nil {
		return err
	}
	for now := false; !now; {
		var err error
		if now, err = m.Pause(5 * time.Millisecond); err != nil {
			return err
		}
	}
	n := paused.Add(1)
	defer paused.Add(-1)
	if err := m.Paused(); err != nil {
		return err
	}
	err := m.Done()
	for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
	}
	return err
}

func TestAllArePausedAtOneInstant(t *testing.T) {
	const n = 7
	c, err := New(n)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Break()
	var paused, most atomic.Int32
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = capture(c, i, &paused, &most) })
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil || most.Load() != n {
		t.Fatalf("%d of %d were paused together: %v", most.Load(), n, err)
	}
}

// partial plays members of which the last leaves after some steps.
func partial(t *testing.T, steps int, leave func(c *Cut, m *Member)) {
	t.Helper()
	c, err := New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Break()
	run := make(chan error, 1)
	go func() { run <- c.Run(t.Context()) }()
	var paused, most atomic.Int32
	other := make(chan error, 1)
	go func() { other <- capture(c, 0, &paused, &most) }()
	m := Join(c.File(1))
	for i, step := range []func() error{m.Ready, func() error { _, err := m.Pause(time.Minute); return err }} {
		if i < steps {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave(c, m)
	if err := <-other; !errors.Is(err, vmm.ErrCut) {
		t.Errorf("the other member has %v, want vmm.ErrCut", err)
	}
	if err := <-run; !errors.Is(err, vmm.ErrCut) {
		t.Errorf("the cut has %v, want vmm.ErrCut", err)
	}
}

func TestAMemberThatLeavesBreaksTheCut(t *testing.T) {
	gone := func(c *Cut, _ *Member) { c.Leave(1) }
	for steps := range 3 {
		partial(t, steps, gone)
	}
}

func TestAWrongMessageBreaksTheCut(t *testing.T) {
	partial(t, 0, func(_ *Cut, m *Member) {
		if err := m.Paused(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestACutEndsWithItsContext(t *testing.T) {
	c, err := New(2)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	run := make(chan error, 1)
	go func() { run <- c.Run(ctx) }()
	m := Join(c.File(0))
	if err := m.Ready(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := m.Pause(time.Minute); !errors.Is(err, vmm.ErrCut) {
		t.Errorf("the member has %v, want vmm.ErrCut", err)
	}
	if err := <-run; !errors.Is(err, vmm.ErrCut) {
		t.Errorf("the cut has %v, want vmm.ErrCut", err)
	}
	c.Leave(0)
	c.Leave(1)
}
