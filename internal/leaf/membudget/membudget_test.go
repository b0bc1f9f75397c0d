package membudget

import "testing"

func TestTenantsLeaveAShareForTheNext(t *testing.T) {
	b := New(1200)
	for _, hog := range []string{"a", "b"} {
		for b.Charge(hog, 10) {
		}
	}
	if got := b.ChargeUpTo("c", 1000); got < 100 {
		t.Errorf("the third tenant gets %d bytes", got)
	}
	if n := b.ChargeUpTo("a", 1000); n != 0 {
		t.Errorf("a greedy tenant gets %d bytes more", n)
	}
}

func TestReleasedBytesAreFree(t *testing.T) {
	b := New(100)
	if !b.Charge("a", 50) || b.Charge("a", 1) {
		t.Error("a tenant alone gets half of the total")
	}
	b.Release("a", 50)
	if !b.Charge("a", 50) {
		t.Error("released bytes are not free")
	}
}
