package netpolicy

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestTheFloor(t *testing.T) {
	f, err := NewFloor(FloorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	f.SetHostAddrs([]netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("2620:fe::1%eth0")})
	for addr, want := range map[string]Reason{
		"8.8.8.8": "", "1.1.1.1": "", "2606:4700::1111": "", "64:ff9b::8.8.8.8": "", "::ffff:8.8.8.8": "",
		"93.184.216.34": FloorHost, "::ffff:93.184.216.34": FloorHost, "64:ff9b::93.184.216.34": FloorHost, "2620:fe::1": FloorHost,
		"0.0.0.0": FloorSpecial, "0.1.2.3": FloorSpecial, "127.0.0.1": FloorSpecial, "127.255.0.1": FloorSpecial,
		"10.0.0.1": FloorSpecial, "172.16.0.1": FloorSpecial, "172.31.255.255": FloorSpecial, "172.32.0.0": "",
		"192.168.1.1": FloorSpecial, "100.64.0.1": FloorSpecial, "100.128.0.0": "", "192.0.0.1": FloorSpecial, "192.0.0.8": FloorSpecial,
		"198.18.0.1": FloorSpecial, "224.0.0.1": FloorSpecial, "240.0.0.1": FloorSpecial, "255.255.255.255": FloorSpecial,
		"169.254.169.254": FloorMetadata, "169.254.1.1": FloorMetadata, "100.100.100.200": FloorMetadata, "168.63.129.16": FloorMetadata,
		"192.0.0.192": FloorMetadata, "fd00:ec2::254": FloorMetadata, "fd20:ce::254": FloorMetadata,
		"::ffff:169.254.169.254": FloorMetadata, "64:ff9b::a9fe:a9fe": FloorMetadata,
		"::": FloorSpecial, "::1": FloorSpecial, "::ffff:127.0.0.1": FloorSpecial, "::127.0.0.1": FloorSpecial,
		"::ffff:0:127.0.0.1": FloorSpecial, "64:ff9b::10.0.0.1": FloorSpecial, "64:ff9b:1::8.8.8.8": FloorSpecial,
		"2002:808:808::1": FloorSpecial, "2002:a9fe:a9fe::1": FloorSpecial, "2001:0:808:808::1": FloorSpecial,
		"fe80::1": FloorSpecial, "fe80::1%eth0": FloorSpecial, "fec0::1": FloorSpecial, "fc00::1": FloorSpecial, "fd66:6f72:6b64::2": FloorSpecial,
		"ff02::1": FloorSpecial, "2001:db8::1": FloorSpecial, "3fff::1": FloorSpecial, "5f00::1": FloorSpecial, "100::1": FloorSpecial,
	} {
		if got, text := f.CheckAddr(netip.MustParseAddr(addr)); got != want || (text == "") != (want == "") {
			t.Errorf("%s: got %q (%s), want %q", addr, got, text, want)
		}
	}
	if got, _ := f.CheckAddr(netip.Addr{}); got == "" {
		t.Error("no address is open")
	}
}

func TestWhatAnOperatorOpens(t *testing.T) {
	own := netip.MustParseAddr("10.1.0.1")
	f, err := NewFloor(FloorConfig{Private: []netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fd00::/8"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	f.SetHostAddrs([]netip.Addr{own})
	for addr, want := range map[string]Reason{
		"10.1.2.3": "", "::ffff:10.1.2.3": "", "10.2.0.0": FloorSpecial, "fd12::1": "", "10.1.0.1": FloorHost,
		"100.100.100.200": FloorMetadata, "fd00:ec2::254": FloorMetadata, "64:ff9b::10.1.2.3": FloorSpecial,
		"fd66:6f72:6b64::2": FloorSpecial,
	} {
		if got, _ := f.CheckAddr(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: got %q, want %q", addr, got, want)
		}
	}
	for cidr, want := range map[string]string{
		"169.254.0.0/16": "link-local", "169.254.169.254/32": "link-local", "127.0.0.0/8": "loopback", "8.8.8.0/24": "not inside",
		"0.0.0.0/0": "not inside", "::/0": "not inside", "fe80::/64": "link-local", "2002::/16": "6to4", "64:ff9b:1::/48": "NAT64",
		"::ffff:10.0.0.0/104": "IPv4-mapped", "192.0.0.0/29": "IETF", "fd66:6f72:6b64::/64": "own wire",
	} {
		_, err := NewFloor(FloorConfig{Private: []netip.Prefix{netip.MustParsePrefix(cidr)}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", cidr, err, want)
		}
	}
}

func TestPortsOfTheHost(t *testing.T) {
	f, err := NewFloor(FloorConfig{HostPorts: []PortRange{OnePort(8080)}, HostTarget: netip.MustParseAddr("127.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	judge := func(spec Spec, port uint16, proto Protocol) Decision {
		p, err := CompileWithin(spec, Bounds{Floor: f})
		if err != nil {
			t.Fatal(err)
		}
		return p.Judge(Query{Protocol: proto, Addr: netip.AddrPortFrom(HostAddr, port), Now: noon})
	}
	named := Spec{Allow: []string{"host.forkd.internal:8080-8081"}}
	if d := judge(named, 8080, TCP); d.Verdict != Allowed || d.Reason != HostPort || d.Dial.String() != "127.0.0.2:8080" || d.Name != HostName {
		t.Errorf("got %+v", d)
	}
	if d := judge(Spec{Default: Public, Allow: []string{HostName}}, 8080, UDP); d.Verdict != Allowed || d.Rule != HostName {
		t.Errorf("public, and named: got %+v", d)
	}
	for what, d := range map[string]Decision{
		"a port that is not open":   judge(named, 8081, TCP),
		"a policy that is closed":   judge(Spec{}, 8080, TCP),
		"a policy that denies it":   judge(Spec{Default: Public, Deny: []string{HostName}}, 8080, TCP),
		"public alone":              judge(Spec{Default: Public}, 8080, TCP),
		"names around it":           judge(Spec{Default: Public, Allow: []string{"*.forkd.internal"}}, 8080, TCP),
		"addresses around it":       judge(Spec{Allow: []string{"0.0.0.0/0", "192.0.0.8:8080"}}, 8080, TCP),
		"another port of it":        judge(Spec{Default: Public, Allow: []string{"host.forkd.internal:1"}}, 8080, TCP),
		"within one that is public": judge(Spec{Allow: []string{HostName}, Within: &Spec{Default: Public}}, 8080, TCP),
		"echo":                      judge(Spec{Default: Public, Allow: []string{HostName}}, 8080, Echo),
		"a port that is not there":  judge(Spec{Allow: []string{HostName}}, 0, TCP),
		"a rule of another address": judge(Spec{Allow: []string{"9.9.9.9"}}, 8080, TCP),
	} {
		if d.Verdict != Denied || d.Dial.IsValid() {
			t.Errorf("%s: got %+v", what, d)
		}
	}
}

// No address of the floor is open, for any policy and any facts.
func TestNoPolicyOpensTheFloor(t *testing.T) {
	all := Spec{Default: Public, Allow: []string{"0.0.0.0/0", "::/0", "*.test", "169.254.169.254", "127.0.0.1"}}
	random := rand.New(rand.NewPCG(1, 2))
	f, err := NewFloor(FloorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := CompileWithin(all, Bounds{Floor: f})
	if err != nil {
		t.Fatal(err)
	}
	inside := func(s special) netip.Addr {
		b := s.prefix.Addr().AsSlice()
		for i := s.prefix.Bits(); i < 8*len(b); i++ {
			if random.IntN(2) == 1 {
				b[i/8] |= 0x80 >> (i % 8)
			}
		}
		a, _ := netip.AddrFromSlice(b)
		return a
	}
	for _, s := range append(append([]special{}, specials...), metadata...) {
		if s.prefix == mappedPrefix { // judged by the IPv4 address inside
			continue
		}
		for range 200 {
			a := inside(s)
			forms := []netip.Addr{a}
			if a.Is4() {
				b := a.As4()
				wrapped := nat64.Addr().As16()
				copy(wrapped[12:], b[:])
				forms = append(forms, netip.AddrFrom16(a.As16()), netip.AddrFrom16(wrapped),
					netip.AddrFrom16([16]byte{0x20, 0x02, b[0], b[1], b[2], b[3]}))
			}
			for _, form := range forms {
				facts := &Facts{}
				facts.Add("a.test", form, 0, noon)
				for _, q := range []Query{{Facts: facts}, {Name: "a.test"}, {}} {
					q.Protocol, q.Addr, q.Now = TCP, netip.AddrPortFrom(form, 443), noon
					if d := p.Judge(q); d.Verdict != Denied {
						t.Fatalf("%s (%s): got %+v", form, s.name, d)
					}
				}
			}
		}
	}
}

func TestTheHostsNameIsResolvedIfARuleNamesIt(t *testing.T) {
	f, err := NewFloor(FloorConfig{HostPorts: []PortRange{OnePort(8080)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		spec Spec
		want Verdict
	}{
		{"it is named", Spec{Allow: []string{"host.forkd.internal:8080"}}, Allowed},
		{"public alone", Spec{Default: Public}, Denied},
		{"names around it", Spec{Allow: []string{"*.forkd.internal", "0.0.0.0/0"}}, Denied},
		{"within one that does not", Spec{Allow: []string{HostName}, Within: &Spec{Default: Public}}, Denied},
	} {
		p, err := CompileWithin(c.spec, Bounds{Floor: f})
		if err != nil {
			t.Fatal(err)
		}
		if d := p.JudgeDNS(HostName, 1); d.Verdict != c.want || d.Local != (c.want == Allowed) {
			t.Errorf("%s: got %+v", c.what, d)
		}
	}
}

// A ceiling allows the host's ports to a policy that names the host, if the ceiling names it, too.
func TestTheHostUnderACeiling(t *testing.T) {
	for _, c := range []struct {
		what          string
		ceiling, spec Spec
		want          []string
	}{
		{"a public ceiling", Spec{Default: Public}, Spec{Allow: []string{"host.forkd.internal:8080"}}, nil},
		{"one that names it", Spec{Default: Public, Allow: []string{HostName}}, Spec{Allow: []string{"host.forkd.internal:8080"}},
			[]string{"host.forkd.internal:8080"}},
		{"nobody asked", Spec{Allow: []string{HostName, "9.9.9.9"}}, Spec{Default: Public}, []string{"9.9.9.9"}},
		{"nobody named it", Spec{Allow: []string{HostName}}, Spec{Allow: []string{"*.internal", "0.0.0.0/0"}}, nil},
	} {
		out, cuts, err := CutTo(c.ceiling, c.spec)
		if err != nil || !slices.Equal(out.Allow, c.want) {
			t.Errorf("%s: got %q, %v, want %q", c.what, out.Allow, err, c.want)
		}
		if len(cuts) == 0 && c.what != "one that names it" {
			t.Errorf("%s: no cut is told", c.what)
		}
	}
}
