package netpolicy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func TestCutTo(t *testing.T) {
	for _, c := range []struct {
		what          string
		ceiling, spec Spec
		allow         string // the remaining rules
		def           Default
		cuts          string // the cut rules, with * if cut partly
	}{
		{"all of it is given", Spec{Default: Public}, Spec{Allow: []string{"a.test", "9.9.9.9"}}, "a.test 9.9.9.9", "", ""},
		{"nothing is", Spec{}, Spec{Allow: []string{"a.test"}}, "", "", "a.test"},
		{"a wider rule gives a narrower one", Spec{Allow: []string{"*.test", "9.0.0.0/8"}}, Spec{Allow: []string{"a.test:443", "9.9.9.0/24:80/tcp"}}, "a.test:443 9.9.9.0/24:80/tcp", "", ""},
		{"a narrower one gives a part", Spec{Allow: []string{"9.9.9.0/24:1-100/tcp"}}, Spec{Allow: []string{"9.0.0.0/8:50-200"}}, "9.9.9.0/24:50-100/tcp", "", "9.0.0.0/8:50-200*"},
		{"an apex is not below itself", Spec{Allow: []string{"*.a.test"}}, Spec{Allow: []string{"a.test"}}, "", "", "a.test"},
		{"public is cut to what is given", Spec{Allow: []string{"a.test:443"}}, Spec{Default: Public}, "a.test:443", Deny, "default: public*"},
		{"public under a closed ceiling is closed", Spec{}, Spec{Default: Public}, "", Deny, "default: public"},
		{"public under a public one that denies", Spec{Default: Public, Deny: []string{"evil.test"}}, Spec{Default: Public}, "", Public, "default: public*"},
		{"that denies it itself", Spec{Default: Public, Deny: []string{"evil.test"}}, Spec{Default: Public, Deny: []string{"evil.test"}}, "", Public, ""},
		{"a name under an address", Spec{Allow: []string{"9.9.9.9"}}, Spec{Allow: []string{"a.test"}}, "a.test", "", "a.test*"},
		{"what the ceiling denies", Spec{Default: Public, Deny: []string{"*.evil.test"}}, Spec{Allow: []string{"a.evil.test", "b.test"}}, "b.test", "", "a.evil.test"},
		{"private addresses under a public ceiling", Spec{Default: Public}, Spec{Allow: []string{"10.0.0.0/8", "9.9.9.9", "host.forkd.internal:80"}}, "9.9.9.9", "", "10.0.0.0/8 host.forkd.internal:80"},
		{"private addresses that a public ceiling names", Spec{Default: Public, Allow: []string{"10.1.0.0/16"}}, Spec{Allow: []string{"10.0.0.0/8"}}, "10.1.0.0/16", "", "10.0.0.0/8*"},
		{"public is not what a ceiling names of private networks", Spec{Allow: []string{"10.0.0.0/8", "9.0.0.0/8"}}, Spec{Default: Public}, "9.0.0.0/8", Deny, "default: public*"},
		{"limits", Spec{Default: Public, Limits: Limits{Flows: 10}}, Spec{Default: Public, Limits: Limits{Flows: 20}}, "", Public, "limits*"},
	} {
		got, cuts, err := CutTo(c.ceiling, c.spec)
		var list []string
		for _, cut := range cuts {
			text := cut.Rule
			if cut.Partly {
				text += "*"
			}
			if list = append(list, text); cut.Text == "" {
				t.Errorf("%s: no text for %s", c.what, cut.Rule)
			}
		}
		if err != nil || strings.Join(got.Allow, " ") != c.allow || got.Default != c.def || strings.Join(list, " ") != c.cuts {
			t.Errorf("%s: got %+v, %q, %v", c.what, got, list, err)
		}
	}
	if _, _, err := CutTo(Spec{Allow: []string{"a b"}}, Spec{}); err == nil {
		t.Error("a wrong ceiling is no error")
	}
}

func TestTheCeilingHasTheLastWord(t *testing.T) {
	ceiling, err := Compile(Spec{Allow: []string{"a.test:443", "9.9.9.0/24"}, Limits: Limits{Flows: 7}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := CompileWithin(Spec{Default: Public}, Bounds{Ceiling: ceiling})
	if err != nil {
		t.Fatal(err)
	}
	facts := know("a.test", "93.184.216.34")
	for addr, want := range map[string]Reason{"9.9.9.9:1": DefaultPublic, "8.8.8.8:22": Ceiling, "93.184.216.34:443": DefaultPublic, "8.8.8.8:443": ReadName} {
		if d := p.Judge(Query{Protocol: TCP, Addr: netip.MustParseAddrPort(addr), Facts: facts, Now: noon}); d.Reason != want {
			t.Errorf("%s: got %+v, want %s", addr, d, want)
		}
	}
	if d := p.JudgeDNS("evil.test", 1); d.Verdict != Denied || d.Reason != Ceiling || !strings.Contains(d.Text, "ceiling") {
		t.Errorf("got %+v", d)
	}
	if d := p.JudgeName("a.test", 443); d.Verdict != Allowed {
		t.Errorf("got %+v", d)
	}
	// The ceiling has an address rule: the name passes, and the address it resolves to does not.
	q := Query{Protocol: TCP, Addr: netip.MustParseAddrPort("8.8.8.8:443"), Name: "b.test", Now: noon}
	if d := p.Judge(q); d.Verdict != Denied || d.Reason != Ceiling {
		t.Errorf("got %+v", d)
	}
	if !p.HasDomainRules() || p.Limits().Flows != 7 || p.Limits().FlowsPerSecond != DefaultFlowsPerSecond {
		t.Errorf("got %+v", p.Limits())
	}
}

// For random policies, a child never exceeds its parent, and a policy never exceeds its ceiling.
func TestNothingIsAboveItsBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	hosts := []string{"a.test", "b.a.test", "*.a.test", "*.test", "9.9.9.9", "9.9.9.0/24", "9.0.0.0/8", "0.0.0.0/0", "2606:4700::/32", "::/0"}
	ends := []string{"", ":443", ":80", ":400-500", ":443/tcp", "/udp", ":1-100/udp"}
	list := func() (all []string) {
		for range random.IntN(4) {
			host := hosts[random.IntN(len(hosts))]
			all = append(all, host+ends[random.IntN(len(ends))])
		}
		return all
	}
	spec := func() Spec {
		return Spec{Default: []Default{Deny, Public}[random.IntN(2)], Allow: list(), Deny: list()}
	}
	facts := know("a.test", "9.9.9.9", "b.a.test", "9.1.1.1", "c.other", "9.9.9.8", "a.test", "2606:4700::1")
	var queries []Query
	for _, a := range []string{"9.9.9.9", "9.9.9.8", "9.1.1.1", "8.8.8.8", "2606:4700::1", "2620:fe::fe"} {
		for _, port := range []uint16{443, 80, 53, 450, 9999} {
			for _, proto := range []Protocol{TCP, UDP, Echo} {
				for _, name := range []string{"", "a.test", "c.other"} {
					queries = append(queries, Query{Protocol: proto, Addr: netip.AddrPortFrom(netip.MustParseAddr(a), port), Name: name, Facts: facts, Now: noon})
				}
			}
		}
	}
	for range 300 {
		above, below := spec(), spec()
		bound, err := Compile(above)
		if err != nil {
			t.Fatal(err)
		}
		under, err := CompileWithin(below, Bounds{Ceiling: bound})
		if err != nil {
			t.Fatal(err)
		}
		own, err := Compile(below)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queries {
			about := fmt.Sprintf("%+v under %+v: %s/%s %q", below, above, q.Addr, q.Protocol, q.Name)
			most := min(rank(bound.Judge(q)), rank(own.Judge(q)))
			if got := rank(under.Judge(q)); got != most {
				t.Fatalf("%s: with a ceiling %d, want %d", about, got, most)
			}
		}
		for _, name := range []string{"a.test", "b.a.test", "x.test", "other"} {
			most := bound.JudgeDNS(name, 1).Verdict == Allowed && own.JudgeDNS(name, 1).Verdict == Allowed
			if got := under.JudgeDNS(name, 1).Verdict == Allowed; got != most {
				t.Fatalf("%+v under %+v: %s resolves: %t", below, above, name, got)
			}
		}
	}
}

// rank orders verdicts by how much they open.
func rank(d Decision) int {
	switch d.Verdict {
	case Allowed:
		return 2
	case NeedName:
		return 1
	}
	return 0
}

func TestPoliciesWithinEachOtherHaveAnEnd(t *testing.T) {
	s := Spec{Default: Public}
	for range maxWithin + 2 {
		within := s
		s = Spec{Default: Public, Within: &within}
	}
	if _, err := Compile(s); err == nil {
		t.Error("it compiles")
	}
}
