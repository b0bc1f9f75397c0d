package netpolicy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAGrantCutsPortsOfTheHost(t *testing.T) {
	for _, c := range []struct{ what, grant, allow, left, cut string }{
		{"no grant", "", "host.forkd.internal:8080 a.test", "a.test", "host.forkd.internal:8080"},
		{"letters and a final dot", "", "HOST.forkd.Internal.:8080", "", "HOST.forkd.Internal.:8080"},
		{"every port", "", "host.forkd.internal", "", "host.forkd.internal"},
		{"the port", "8080", "host.forkd.internal:8080", "host.forkd.internal:8080", ""},
		{"another port", "8080", "host.forkd.internal:8081", "", "host.forkd.internal:8081"},
		{"a part", "8080,9000-9100", "host.forkd.internal:8000-9050/tcp",
			"host.forkd.internal:8080/tcp host.forkd.internal:9000-9050/tcp", "host.forkd.internal:8000-9050/tcp*"},
		{"every port, of some", "8080", "host.forkd.internal", "host.forkd.internal:8080", "host.forkd.internal*"},
		{"ranges that touch", "8000-8010,8011-8020", "host.forkd.internal:8005-8015", "host.forkd.internal:8005-8015", ""},
		{"others' rules", "", "*.forkd.internal 127.0.0.1 0.0.0.0/0", "*.forkd.internal 127.0.0.1 0.0.0.0/0", ""},
	} {
		var texts []string
		if c.grant != "" {
			texts = strings.Split(c.grant, ",")
		}
		g, err := ParseHostGrant(texts)
		if err != nil {
			t.Fatal(err)
		}
		got, cuts, err := g.Cut(Spec{Allow: strings.Fields(c.allow)})
		var cut string
		for _, x := range cuts {
			if cut += x.Rule; x.Partly {
				cut += "*"
			}
		}
		if err != nil || strings.Join(got.Allow, " ") != c.left || cut != c.cut {
			t.Errorf("%s: got %q, cut %q, %v", c.what, got.Allow, cut, err)
		}
	}
}

func TestAGrantCoversAnother(t *testing.T) {
	grant := func(texts ...string) HostGrant {
		g, err := ParseHostGrant(texts)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	all := HostGrant{All: true}
	if g := grant("80-90", "91-100"); !g.Covers(grant("85-95")) || !g.Covers(HostGrant{}) || g.Covers(grant("100-101")) || g.Covers(all) {
		t.Error("ranges")
	}
	if !all.Covers(all) || !all.Covers(grant("1")) || (HostGrant{}).Covers(grant("1")) {
		t.Error("all and none")
	}
	for _, bad := range []string{"", "0", "70000", "9-8", "x", "1-", "+1"} {
		if _, err := ParseHostGrant([]string{bad}); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// FuzzHostGrant tries rules and grants: after a cut, a policy reaches no ungranted port of the
// host.
func FuzzHostGrant(f *testing.F) {
	f.Add("host.forkd.internal:8080", uint16(8080), uint16(8090), uint16(8085))
	f.Add("host.forkd.internal", uint16(1), uint16(1), uint16(2))
	f.Add("HOST.FORKD.INTERNAL.:1-65535/udp", uint16(0), uint16(0), uint16(53))
	f.Add("*.forkd.internal", uint16(0), uint16(0), uint16(22))
	f.Add("192.0.0.8:22", uint16(0), uint16(0), uint16(22))
	f.Add("[::ffff:192.0.0.8]:22", uint16(0), uint16(0), uint16(22))
	floor, err := NewFloor(FloorConfig{HostPorts: []PortRange{{1, 65535}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, rule string, first, last, port uint16) {
		var g HostGrant
		if r := (PortRange{first, last}); r.check() == nil {
			g.Ports = []PortRange{r}
		}
		cut, _, err := g.Cut(Spec{Default: Public, Allow: []string{rule}})
		if err != nil {
			return
		}
		p, err := CompileWithin(cut, Bounds{Floor: floor})
		if err != nil {
			t.Fatalf("%q became %q, which cannot be read: %v", rule, cut.Allow, err)
		}
		for _, proto := range []Protocol{TCP, UDP} {
			d := p.Judge(Query{Protocol: proto, Addr: netip.AddrPortFrom(HostAddr, port), Now: noon})
			if d.Verdict == Allowed && !(len(g.Ports) > 0 && g.Ports[0].has(port)) {
				t.Fatalf("%q with %s reaches port %d", rule, g, port)
			}
		}
	})
}
