package network_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
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
func slowNet(t *testing.T) (*enginefake.Host, *engine.Engine, *enginefake.Net, *counts) {
	h, n := enginefake.NetHost(t)
	seen := &counts{done: map[sandbox.Op]int{}}
	h.Cfg.Observer = seen
	e := h.Open()
	h.Snapshot(e, "a")
	n.Answers = make(chan struct{})
	return h, e, n, seen
}

// beginFork begins a fork.
func beginFork(ctx context.Context, e *engine.Engine, spec netpolicy.Spec) <-chan error {
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
	for name, spec := range map[string]netpolicy.Spec{"plain": enginefake.PublicNet, "with headers": withSecret(enginefake.PublicNet)} {
		t.Run(name, func(t *testing.T) {
			h, e, n, seen := slowNet(t)
			restored := seen.of(sandbox.OpRestore)
			ended := beginFork(t.Context(), e, spec)
			<-n.Asked
			enginefake.Eventually(t, "two children at their gates", func() bool { return seen.of(sandbox.OpRestore) == restored+2 })
			if len(e.List()) != 0 || seen.of(sandbox.OpIdentity) != 0 {
				t.Errorf("listed before their network is there: %v", e.List())
			}
			close(n.Answers)
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			for _, sb := range e.List() {
				if got := netNotes(h, sb.PID); !slices.Equal(got, []string{"given", "open"}) {
					t.Errorf("its VM saw %q", got)
				}
				if bound := n.Of(sb.ID); len(bound) != 1 || !enginefake.Connected(bound[0]) {
					t.Errorf("bound as %+v", bound)
				}
				if got := bundle(h, sb); (got != "") != (len(spec.Headers) > 0) {
					t.Errorf("its bundle is %q", got)
				}
			}
		})
	}
}

func TestChildrenThatForkdNetDoesNotTakeGetTheirNetworkLater(t *testing.T) {
	h, e, n, _ := slowNet(t)
	n.Fails = errors.New("no more descriptors")
	close(n.Answers)
	if err := <-beginFork(t.Context(), e, enginefake.PublicNet); err != nil {
		t.Fatal(err)
	}
	for _, sb := range e.List() {
		if got := netNotes(h, sb.PID); !slices.Equal(got, []string{"open"}) || len(n.Of(sb.ID)) != 0 {
			t.Errorf("its VM saw %q, bound %+v", got, n.Of(sb.ID))
		}
	}
	n.Mu.Lock()
	n.Fails = nil
	n.Mu.Unlock()
	n.Kill()
	for _, sb := range e.List() {
		enginefake.Eventually(t, "a wire", func() bool { return slices.Equal(netNotes(h, sb.PID), []string{"open", "net"}) })
	}
}

func TestAForkThatIsCancelledWhileForkdNetIsAskedLeavesNothing(t *testing.T) {
	h, e, n, seen := slowNet(t)
	before, restored := enginefake.OpenFiles(t), seen.of(sandbox.OpRestore)
	wish := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := beginFork(ctx, e, enginefake.PublicNet)
	<-n.Asked
	enginefake.Eventually(t, "two children at their gates", func() bool { return seen.of(sandbox.OpRestore) == restored+2 })
	cancel(wish)
	if err := <-ended; !errors.Is(err, wish) {
		t.Errorf("got %v", err)
	}
	h.Empty()
	// forkd-net had bound them, but its answer was abandoned.
	enginefake.Eventually(t, "release of both", func() bool { return n.Count() == 0 })
	if l := e.List(); len(l) != 0 {
		t.Errorf("listed: %v", l)
	}
	enginefake.Eventually(t, "return of all descriptors", func() bool { return enginefake.OpenFiles(t) <= before })
}

func TestARollbackThatIsCancelledWhileForkdNetIsAskedChangesNothing(t *testing.T) {
	h, e, n, seen := slowNet(t)
	close(n.Answers)
	sb := enginefake.ForkNet(h, e, "a", 1, &enginefake.PublicNet)[0]
	<-n.Asked
	n.Mu.Lock()
	n.Answers = make(chan struct{})
	n.Mu.Unlock()
	was := n.Of(sb.ID)[0].VM
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := e.Rollback(ctx, sb.ID, "a")
		ended <- err
	}()
	<-n.Asked
	cancel()
	if err := <-ended; err == nil {
		t.Error("it was rolled back")
	}
	enginefake.Eventually(t, "release of the new VM", func() bool { return len(n.Of(sb.ID)) == 1 })
	if now := n.Of(sb.ID)[0]; now.VM != was || !enginefake.Connected(now) || seen.of(sandbox.OpRollback) != 0 {
		t.Errorf("bound as %+v", now)
	}
	wantWired(h, sb)
}
