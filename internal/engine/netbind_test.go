package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// counts counts the operations done.
type counts struct {
	mu   sync.Mutex
	done map[sandbox.Op]int
}

func (c *counts) Observe(op sandbox.Op, _ time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.done[op]++
	}
}

func (c *counts) of(op sandbox.Op) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done[op]
}

// slowNet returns a host with a slow forkd-net and a snapshot a.
func slowNet(t *testing.T) (*host, *Engine, *fakeNet, *counts) {
	h, n := netHost(t)
	seen := &counts{done: map[sandbox.Op]int{}}
	h.cfg.Observer = seen
	e := h.open()
	h.snapshot(e, "a")
	n.answers = make(chan struct{})
	return h, e, n, seen
}

// beginFork begins a fork.
func beginFork(ctx context.Context, e *Engine, spec netpolicy.Spec) <-chan error {
	ended := make(chan error, 1)
	go func() {
		r, err := e.Fork(ctx, sandbox.ForkRequest{Tag: "a", N: 2, Network: &spec})
		for _, c := range r.Children {
			err = errors.Join(err, c.Err)
		}
		ended <- err
	}()
	return ended
}

func TestChildrenAreRestoredWhileForkdNetIsAskedAndLetOutWhenItHasAnswered(t *testing.T) {
	for name, spec := range map[string]netpolicy.Spec{"plain": publicNet, "with headers": withSecret(publicNet)} {
		t.Run(name, func(t *testing.T) {
			h, e, n, seen := slowNet(t)
			restored := seen.of(sandbox.OpRestore)
			ended := beginFork(t.Context(), e, spec)
			<-n.asked
			eventually(t, "two children at their gates", func() bool { return seen.of(sandbox.OpRestore) == restored+2 })
			if len(e.List()) != 0 || seen.of(sandbox.OpIdentity) != 0 {
				t.Errorf("listed before their network is there: %v", e.List())
			}
			close(n.answers)
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			for _, sb := range e.List() {
				if got := h.netNotes(sb.PID); !slices.Equal(got, []string{"given", "open"}) {
					t.Errorf("its VM saw %q", got)
				}
				if bound := n.of(sb.ID); len(bound) != 1 || !connected(bound[0]) {
					t.Errorf("bound as %+v", bound)
				}
				if got := h.bundle(sb); (got != "") != (len(spec.Headers) > 0) {
					t.Errorf("its bundle is %q", got)
				}
			}
		})
	}
}

func TestChildrenThatForkdNetDoesNotTakeGetTheirNetworkLater(t *testing.T) {
	h, e, n, _ := slowNet(t)
	n.fails = errors.New("no more descriptors")
	close(n.answers)
	if err := <-beginFork(t.Context(), e, publicNet); err != nil {
		t.Fatal(err)
	}
	for _, sb := range e.List() {
		if got := h.netNotes(sb.PID); !slices.Equal(got, []string{"open"}) || len(n.of(sb.ID)) != 0 {
			t.Errorf("its VM saw %q, bound %+v", got, n.of(sb.ID))
		}
	}
	n.mu.Lock()
	n.fails = nil
	n.mu.Unlock()
	n.kill()
	for _, sb := range e.List() {
		eventually(t, "a wire", func() bool { return slices.Equal(h.netNotes(sb.PID), []string{"open", "net"}) })
	}
}

func TestAForkThatIsCancelledWhileForkdNetIsAskedLeavesNothing(t *testing.T) {
	h, e, n, seen := slowNet(t)
	before, restored := openFiles(t), seen.of(sandbox.OpRestore)
	wish := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := beginFork(ctx, e, publicNet)
	<-n.asked
	eventually(t, "two children at their gates", func() bool { return seen.of(sandbox.OpRestore) == restored+2 })
	cancel(wish)
	if err := <-ended; !errors.Is(err, wish) {
		t.Errorf("got %v", err)
	}
	h.empty()
	// forkd-net had bound them, but its answer was abandoned.
	eventually(t, "release of both", func() bool { return n.count() == 0 })
	if l := e.List(); len(l) != 0 {
		t.Errorf("listed: %v", l)
	}
	eventually(t, "return of all descriptors", func() bool { return openFiles(t) <= before })
}

func TestARollbackThatIsCancelledWhileForkdNetIsAskedChangesNothing(t *testing.T) {
	h, e, n, seen := slowNet(t)
	close(n.answers)
	sb := h.forkNet(e, "a", 1, &publicNet)[0]
	<-n.asked
	n.mu.Lock()
	n.answers = make(chan struct{})
	n.mu.Unlock()
	was := n.of(sb.ID)[0].VM
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := e.Rollback(ctx, sb.ID, "a")
		ended <- err
	}()
	<-n.asked
	cancel()
	if err := <-ended; err == nil {
		t.Error("it was rolled back")
	}
	eventually(t, "release of the new VM", func() bool { return len(n.of(sb.ID)) == 1 })
	if now := n.of(sb.ID)[0]; now.VM != was || !connected(now) || seen.of(sandbox.OpRollback) != 0 {
		t.Errorf("bound as %+v", now)
	}
	h.wantWired(sb)
}
