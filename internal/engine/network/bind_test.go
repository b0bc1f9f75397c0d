package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// turnstile is a forkd-net that answers a bind request when the test allows it.
type turnstile struct {
	sandbox.NetPort
	asked chan int      // how many VMs
	let   chan struct{} // a value for each answer

	mu       sync.Mutex
	released []string
}

func newTurnstile() *turnstile {
	return &turnstile{asked: make(chan int, 16), let: make(chan struct{})}
}

func (p *turnstile) Bind(ctx context.Context, vms []sandbox.NetBinding) ([]string, error) {
	p.asked <- len(vms)
	select {
	case <-p.let:
		return make([]string, len(vms)), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *turnstile) Release(_ context.Context, vm string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = append(p.released, vm)
	return nil
}

func (p *turnstile) Close() error { return nil }

// wired returns Wires with a connection.
func wired(t *testing.T, p sandbox.NetPort) *Wires {
	w := New(Config{
		Connect: func(context.Context) (sandbox.NetPort, error) { return nil, errors.New("unused") },
		Random:  func(n int) ([]byte, error) { return make([]byte, n), nil },
		Log:     slog.New(slog.DiscardHandler),
	})
	w.port = p
	t.Cleanup(w.Close)
	return w
}

func names(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("sb-%d", i))
	}
	return ids
}

var public = netpolicy.Spec{Default: netpolicy.Public}

// over reports whether the request that binds a wire is over.
func over(x *Wire) bool {
	select {
	case <-x.asked:
		return true
	default:
		return false
	}
}

func TestWhoIsOfTheFirstBatchDoesNotWaitForTheSecond(t *testing.T) {
	p := newTurnstile()
	w := wired(t, p)
	all, err := w.Bind(t.Context(), Source{}, public, names(batch+1)...)
	if err != nil {
		t.Fatal(err)
	}
	if n := <-p.asked; n != batch || over(all[0]) {
		t.Errorf("asked for %d; the first is done: %v", n, over(all[0]))
	}
	p.let <- struct{}{}
	if err := all[batch-1].Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := <-p.asked; n != 1 || over(all[batch]) {
		t.Errorf("asked for %d; the last is done: %v", n, over(all[batch]))
	}
	first, err := w.Lend(t.Context(), all[0], Lent{})
	if err != nil || first.File == nil {
		t.Errorf("the first has no end: %v", err)
	}
	first.Close()
	again, err := w.Lend(t.Context(), all[0], first)
	if err != nil || again.File != nil {
		t.Errorf("it is lent the same end twice: %v", err)
	}
	p.let <- struct{}{}
	if err := all[batch].Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		w.Release(x)
	}
	if len(w.wires) != 0 || len(p.released) != batch+1 {
		t.Errorf("%d wires are left, %d were released", len(w.wires), len(p.released))
	}
}

func TestAWireThatIsReleasedWhileItIsBoundIsForgotten(t *testing.T) {
	for _, answered := range []bool{true, false} {
		t.Run(fmt.Sprintf("answered %v", answered), func(t *testing.T) {
			p := newTurnstile()
			w := wired(t, p)
			ctx, cancel := context.WithCancel(t.Context())
			all, err := w.Bind(ctx, Source{}, public, names(3)...)
			if err != nil {
				t.Fatal(err)
			}
			<-p.asked
			w.Release(all[0]) // during it
			if answered {
				p.let <- struct{}{}
			} else {
				cancel()
			}
			if err := all[1].Await(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.Release(all[1]) // after it
			w.Release(all[2])
			cancel()
			w.watchers.Wait()
			if len(w.wires) != 0 || len(p.released) != 3 {
				t.Errorf("%d wires are left, released were %v", len(w.wires), p.released)
			}
			for _, x := range all {
				if x.end.f != nil {
					t.Errorf("%s has a descriptor", x.name)
				}
			}
		})
	}
}

func TestWhatIsReleasedBeforeForkdNetIsAskedIsNeverBound(t *testing.T) {
	p := newTurnstile()
	w := wired(t, nil)
	all, err := w.Bind(t.Context(), Source{}, public, names(1)...)
	if err != nil {
		t.Fatal(err)
	}
	w.Release(all[0])
	w.mu.Lock()
	w.port = p
	close(w.tried)
	w.mu.Unlock()
	if err := all[0].Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(p.asked) != 0 {
		t.Error("it was bound")
	}
}
