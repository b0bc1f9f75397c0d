package netpolicy

import (
	"net/netip"
	"testing"
)

// TestPublicIsTheInternetOnly judges addresses opened by an operator: a public policy or ceiling
// does not reach them, and one that names them does.
func TestPublicIsTheInternetOnly(t *testing.T) {
	floor, err := NewFloor(FloorConfig{
		Private:   []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fc00::/8")},
		HostPorts: []PortRange{{1024, 65535}},
	})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"10.1.2.3:80", "[64:ff9b::a01:203]:80", "[::ffff:10.1.2.3]:80", "[fc00::1]:80", "192.0.0.8:8080", "127.0.0.1:8080"}
	wide := Spec{Allow: []string{"10.0.0.0/8", "fc00::/8", HostName, "0.0.0.0/0", "::/0"}}
	for _, c := range []struct {
		what    string
		policy  Spec
		ceiling *Spec
		reaches []string
	}{
		{"public", Spec{Default: Public}, nil, nil},
		{"all of it under a public ceiling", wide, &Spec{Default: Public}, nil},
		{"public under a ceiling of all", Spec{Default: Public}, &wide, nil},
		{"all of it", wide, nil, []string{"10.1.2.3:80", "[::ffff:10.1.2.3]:80", "[fc00::1]:80", "192.0.0.8:8080"}},
		{"under a public ceiling that names some", wide, &Spec{Default: Public, Allow: []string{"10.1.0.0/16"}},
			[]string{"10.1.2.3:80", "[::ffff:10.1.2.3]:80"}},
	} {
		effective, b := c.policy, Bounds{Floor: floor}
		if c.ceiling != nil {
			if effective, _, err = CutTo(*c.ceiling, c.policy); err != nil {
				t.Fatal(err)
			}
			if b.Ceiling, err = CompileWithin(*c.ceiling, b); err != nil {
				t.Fatal(err)
			}
		}
		p, err := CompileWithin(effective, b)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{"93.184.216.34:80": true}
		for _, a := range c.reaches {
			want[a] = true
		}
		for _, a := range append(all, "93.184.216.34:80") {
			d := p.Judge(Query{Protocol: TCP, Addr: netip.MustParseAddrPort(a), Now: noon})
			if got := d.Verdict == Allowed; got != want[a] {
				t.Errorf("%s: %s: got %+v, want %v", c.what, a, d, want[a])
			}
			// A name in the first bytes, or an answer of the resolver, does not open more.
			d = p.Judge(Query{Protocol: TCP, Addr: netip.MustParseAddrPort(a), Name: "a.test", Now: noon})
			if got := d.Verdict == Allowed; got && !want[a] {
				t.Errorf("%s: %s by a name: got %+v", c.what, a, d)
			}
		}
	}
}
