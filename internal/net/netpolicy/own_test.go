package netpolicy

import (
	"net/netip"
	"testing"
)

// TestAddressesOfTheHostThatItDoesNotHaveAreClosed names them, as behind a cloud's address
// translation.
func TestAddressesOfTheHostThatItDoesNotHaveAreClosed(t *testing.T) {
	var own []netip.Prefix
	for _, text := range []string{"93.184.216.34", "8.8.4.0/24", "2606:2800::/48"} {
		p, err := ParseOwn(text)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, p)
	}
	f, err := NewFloor(FloorConfig{Own: own})
	if err != nil {
		t.Fatal(err)
	}
	for addr, closed := range map[string]bool{
		"93.184.216.34": true, "::ffff:93.184.216.34": true, "64:ff9b::5db8:d822": true, "8.8.4.4": true,
		"2606:2800::1": true, "93.184.216.35": false, "8.8.8.8": false, "2606:2801::1": false,
	} {
		if reason, _ := f.CheckAddr(netip.MustParseAddr(addr)); (reason == FloorHost) != closed {
			t.Errorf("%s: got %q", addr, reason)
		}
	}
}

// FuzzParseOwn parses arbitrary text. A parsed network does not cover everything, and its addresses
// are closed.
func FuzzParseOwn(f *testing.F) {
	for _, s := range []string{"1.2.3.4", "1.2.3.0/24", "::ffff:1.2.3.4", "::/0", "fe80::1%eth0", "", "::ffff:0:0/96", "1.2.3.4/33"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseOwn(text)
		if err != nil {
			return
		}
		floor, err := NewFloor(FloorConfig{Own: []netip.Prefix{p}})
		if err != nil || p.Bits() == 0 {
			t.Fatalf("%q: %s, %v", text, p, err)
		}
		if reason, _ := floor.CheckAddr(p.Addr()); reason == "" {
			t.Fatalf("%q: %s is open", text, p)
		}
	})
}
