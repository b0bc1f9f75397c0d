package netpolicy

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestFactsExpire(t *testing.T) {
	f, addr := &Facts{}, netip.MustParseAddr("9.9.9.9")
	f.Add("a.test", addr, 0, noon)
	f.Add("b.test", addr, 5*time.Minute, noon)
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{0, "[a.test b.test]"}, {MinTTL - 1, "[a.test b.test]"}, {MinTTL, "[b.test]"}, {5 * time.Minute, "[]"}} {
		if got := fmt.Sprint(f.Names(nil, addr, noon.Add(c.after))); got != c.want {
			t.Errorf("after %s: got %s, want %s", c.after, got, c.want)
		}
	}
	f.Add("a.test", addr, 0, noon.Add(time.Hour))
	if !f.Has("a.test", netip.MustParseAddr("::ffff:9.9.9.9"), noon.Add(time.Hour)) {
		t.Error("a fact that is told again does not hold again")
	}
}

func TestFactsAreBounded(t *testing.T) {
	f := &Facts{}
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{9, 9, byte(i >> 8), byte(i)}) }
	first := addr(0)
	for i := range 2 * MaxFacts {
		f.Add("a.test", addr(i), time.Hour, noon)
		if !f.Has("a.test", first, noon) {
			t.Fatalf("the fact that is in use is gone after %d", i)
		}
	}
	if f.Len() != MaxFacts || f.Has("a.test", addr(1), noon) {
		t.Errorf("there are %d", f.Len())
	}
	one := &Facts{}
	for i := range 1000 {
		one.Add(fmt.Sprintf("n%d.test", i), first, time.Hour, noon)
	}
	if n := len(one.Names(nil, first, noon)); n != maxNames || !one.Has("n999.test", first, noon) {
		t.Errorf("an address has %d names", n)
	}
}

func TestClonesInheritAndGoTheirOwnWays(t *testing.T) {
	addr, other := netip.MustParseAddr("9.9.9.9"), netip.MustParseAddr("8.8.8.8")
	source := know("a.test", "9.9.9.9")
	clone := source.Clone(noon)
	sibling := source.Clone(noon)
	if clone.inherited != sibling.inherited {
		t.Error("clones of one moment do not share")
	}
	source.Add("source.test", other, 0, noon)
	clone.Add("clone.test", other, 0, noon)
	for what, c := range map[string]struct {
		f     *Facts
		names string
	}{"source": {source, "[source.test]"}, "clone": {clone, "[clone.test]"}, "sibling": {sibling, "[]"}} {
		if got := fmt.Sprint(c.f.Names(nil, other, noon)); got != c.names || !c.f.Has("a.test", addr, noon) {
			t.Errorf("%s: got %s, want %s and what was inherited", what, got, c.names)
		}
	}
	if grand := clone.Clone(noon); !grand.Has("clone.test", other, noon) || !grand.Has("a.test", addr, noon) {
		t.Error("a clone's clone does not know what both knew")
	}
	if late := clone.Clone(noon.Add(MinTTL)); late.Has("a.test", addr, noon.Add(MinTTL)) {
		t.Error("inherited facts do not expire")
	}
	var none *Facts
	none.Add("a.test", addr, 0, noon)
	if none.Has("a.test", addr, noon) || none.Len() != 0 || none.Clone(noon).Len() != 0 {
		t.Error("no facts are some")
	}
}

// Random steps are compared with an unlimited model: the known facts are the added ones.
func TestFactsOfManyClonings(t *testing.T) {
	f := &Facts{}
	for round := range 20 {
		for i := range 50 {
			f.Add(fmt.Sprintf("n%d.test", i), netip.AddrFrom4([4]byte{9, byte(round), 0, byte(i)}), time.Hour, noon)
		}
		f = f.Clone(noon)
	}
	if f.Len() != 1000 {
		t.Errorf("there are %d", f.Len())
	}
	for range 100 {
		for i := range 50 {
			f.Add(fmt.Sprintf("n%d.test", i), netip.AddrFrom4([4]byte{9, 0, 0, byte(i)}), 2*time.Hour, noon)
		}
		f = f.Clone(noon)
	}
	if f.Len() != 1000 {
		t.Errorf("told again, there are %d", f.Len())
	}
}
