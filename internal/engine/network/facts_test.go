package network

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

func TestNamesThatAreBoundAgainHoldNoLonger(t *testing.T) {
	addr := netip.MustParseAddr("198.51.100.7")
	at := time.Unix(1000, 0)
	f := facts{[]netpolicy.Exported{{Name: "a", Addr: addr, Seconds: 60}, {Name: "b", Addr: addr, Seconds: 600}}, at}
	if got := f.left(at.Add(-time.Hour)); !slices.Equal(got, f.list) {
		t.Errorf("at once: %+v", got)
	}
	want := []netpolicy.Exported{{Name: "b", Addr: addr, Seconds: 540}}
	known := leftOf(at.Add(time.Minute))
	if got := known(f); !slices.Equal(got, want) || f.list[1].Seconds != 600 {
		t.Errorf("a minute later: %+v, of %+v", got, f.list)
	}
	if got := known(facts{}); got != nil {
		t.Errorf("of nothing: %+v", got)
	}
	other := facts{f.list, at.Add(time.Minute)}
	if got := known(other); !slices.Equal(got, f.list) {
		t.Errorf("of the same list later: %+v", got)
	}
}
