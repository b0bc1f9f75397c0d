package build

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func TestTurnsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFair(2, 0)
		var mu sync.Mutex
		var order []string
		first, _ := f.take(t.Context(), "a")
		other, _ := f.take(t.Context(), "a")
		var wg sync.WaitGroup
		for _, owner := range []string{"a", "a", "a", "b"} {
			wg.Go(func() {
				done, err := f.take(t.Context(), owner)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, owner)
				mu.Unlock()
				done()
			})
			synctest.Wait()
		}
		first() // b has no turn, a still has one
		wg.Wait()
		other()
		if !slices.Equal(order, []string{"b", "a", "a", "a"}) {
			t.Errorf("turns went to %v", order)
		}
	})
}

func TestATurnIsNotLostToACancelledCall(t *testing.T) {
	f := newFair(1, 1)
	done, err := f.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.take(ctx, "b"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	done()
	again, err := f.take(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	again()
	if f.free != 1 || len(f.held) != 0 || len(f.waiting) != 0 {
		t.Errorf("left over: %d free, %v, %d waiting", f.free, f.held, len(f.waiting))
	}
}
