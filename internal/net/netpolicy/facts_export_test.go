package netpolicy_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

func TestFactsGoThroughASnapshot(t *testing.T) {
	now := time.Unix(1000, 0)
	addr := netip.MustParseAddr("93.184.216.34")
	var f netpolicy.Facts
	f.Add("example.com", addr, time.Hour, now)
	all := f.Export(now.Add(time.Minute))
	if len(all) != 1 || all[0].Name != "example.com" || all[0].Seconds < 3500 || all[0].Seconds > 3541 {
		t.Fatalf("exported %+v", all)
	}
	if !f.Has("example.com", addr, now) {
		t.Error("the source has lost its fact")
	}
	later := now.Add(1000 * time.Hour)
	back := netpolicy.Import(append(all, netpolicy.Exported{Name: "no name", Addr: addr, Seconds: 1}), later)
	if back.Len() != 1 || !back.Has("example.com", addr, later.Add(time.Minute)) || back.Has("example.com", addr, later.Add(time.Hour)) {
		t.Errorf("imported %d facts", back.Len())
	}
}
