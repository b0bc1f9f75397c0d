package shares

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// grab takes slots one by one until no more are granted.
func grab(p *Pool, k Key) (n int) {
	for p.Try(k, 1) {
		n++
	}
	return n
}

func TestAHolderLeavesRoomForOthers(t *testing.T) {
	p := New(1024)
	if n := grab(p, Key{"evil", "a"}); n < 200 || n > 300 {
		t.Errorf("one sandbox holds %d of 1024", n)
	}
	for i := range 10 {
		grab(p, Key{"evil", fmt.Sprint("b", i)})
	}
	if n := grab(p, Key{"evil", "new"}); n == 0 {
		t.Error("the tenant's own next sandbox gets none")
	}
	for i := range 1000 {
		grab(p, Key{"evil", fmt.Sprint("c", i)})
	}
	if p.Used() != 384 {
		t.Errorf("one tenant holds %d of 1024", p.Used())
	}
	for i := range 20 {
		tenant := fmt.Sprint("tenant", i)
		if n := grab(p, Key{tenant, "a"}); n == 0 {
			t.Errorf("%s gets none of %d free", tenant, 1024-p.Used())
		}
		for j := range 50 {
			grab(p, Key{tenant, fmt.Sprint(j)})
		}
	}
}

func TestAWaiterGetsASlotThatIsFreed(t *testing.T) {
	p := New(8)
	greedy, quiet := Key{"evil", "a"}, Key{"evil", "b"}
	n := grab(p, greedy)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Wait(ctx, greedy) }()
	for waiting(p, greedy) == 0 {
		if err := p.Wait(t.Context(), quiet); err != nil { // passes the waiters
			t.Fatal(err)
		}
		p.Free(quiet, 1)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { done <- p.Wait(t.Context(), greedy) }()
	for waiting(p, greedy) == 0 {
	}
	p.Free(greedy, 1)
	if err := <-done; err != nil {
		t.Error(err)
	}
	p.Free(greedy, n)
	if p.Used() != 0 || len(p.tenants) != 0 {
		t.Errorf("%d are used, by %v", p.Used(), p.tenants)
	}
}

func waiting(p *Pool, k Key) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tenants[k.Tenant]; t != nil && t.sandboxes[k.Sandbox] != nil {
		return len(t.sandboxes[k.Sandbox].waiters)
	}
	return 0
}

// FuzzPool takes and frees slots in any order. The counts must agree, and a tenant without slots gets one if the
// others have left the half that they have to leave.
func FuzzPool(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 0x80, 0x81, 0x82})
	f.Add([]byte{0x10, 0x10, 0x10, 0x90, 0x41, 0xc1})
	f.Fuzz(func(t *testing.T, moves []byte) {
		const capacity = 64
		p, held := New(capacity), map[Key]int{}
		for _, m := range moves {
			k := Key{fmt.Sprint(m & 3), fmt.Sprint(m >> 2 & 3)}
			n := 1 + int(m>>4&7)
			if m&0x80 == 0 {
				if p.Try(k, n) {
					held[k] += n
				}
				continue
			}
			n = min(n, held[k])
			p.Free(k, n)
			held[k] -= n
		}
		sum, tenants := 0, map[string]int{}
		for k, n := range held {
			sum += n
			tenants[k.Tenant] += n
		}
		if sum != p.Used() || sum > capacity {
			t.Fatalf("%d are held, the pool has %d", sum, p.Used())
		}
		if !p.Try(Key{"new", "new"}, 1) {
			t.Fatalf("a newcomer gets none: %v", held)
		}
	})
}
