package netd

import (
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netd/control"
)

func TestATreeIsThereAsLongAsOneOfItsVMs(t *testing.T) {
	var all trees
	of := control.Tree{Name: "root", BytesPerSecond: 1 << 20}
	first := all.join(of)
	if first == nil || all.join(of) != first {
		t.Fatal("two VMs of a tree have not the same")
	}
	if all.join(control.Tree{Name: "root", BytesPerSecond: 2 << 20}) == first {
		t.Error("a binding with another rate joins it")
	}
	if all.join(control.Tree{}) != nil {
		t.Error("one without a limit has one")
	}
	all.leave(control.Tree{})
	all.leave(of)
	if all.join(of) != first {
		t.Error("it has gone before its last VM")
	}
	for range 2 {
		all.leave(of)
	}
	all.leave(control.Tree{Name: "root", BytesPerSecond: 2 << 20})
	if len(all.all) != 0 {
		t.Errorf("%d are left", len(all.all))
	}
}

func TestBothLimitsAreKept(t *testing.T) {
	now := time.Unix(1000, 0)
	slow, quick := newMeter(1<<20), newMeter(100<<20)
	for _, m := range []meters{{own: slow, tree: quick}, {own: quick, tree: slow}, {own: slow}, {tree: slow}} {
		now = now.Add(time.Hour)
		if m.none() || m.chunk() != slow.chunk {
			t.Errorf("chunks are %d, want %d", m.chunk(), slow.chunk)
		}
		if wait := m.stream(now, 5<<20); wait < 4*time.Second || wait > 5*time.Second {
			t.Errorf("5 MiB wait %s", wait)
		}
		if m.datagram(now, 1<<20) {
			t.Error("a datagram has passed that was over one of them")
		}
	}
	if m := (meters{}); !m.none() || m.stream(now, 1<<30) != 0 || !m.datagram(now, 1<<30) {
		t.Error("without a limit something waits")
	}
}

// A VM that floods above its own limit leaves the tree's bandwidth to others.
func TestDatagramsOverTheirOwnLimitTakeNothingFromTheTree(t *testing.T) {
	now := time.Unix(1000, 0)
	m := meters{own: newMeter(1 << 20), tree: newMeter(4 << 20)}
	passed := 0
	for range 10000 {
		if m.datagram(now, 1400) {
			passed += 1400
		}
	}
	if wait := m.tree.stream(now, (4<<20)/burstsPerSecond-passed); wait != 0 {
		t.Errorf("%d bytes have passed, and the rest of the tree's burst waits %s", passed, wait)
	}
}
