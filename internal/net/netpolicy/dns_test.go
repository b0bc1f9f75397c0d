package netpolicy

import (
	"net/netip"
	"testing"
)

func TestJudgeDNS(t *testing.T) {
	closed := Spec{Allow: []string{"example.com:443", "*.wild.test", "9.9.9.0/24", "2606:4700::/32:443"}}
	open := Spec{Default: Public, Deny: []string{"*.evil.test", "mail.test:25"}}
	const typeA = 1
	for _, c := range []struct {
		name, q string
		spec    Spec
		qtype   uint16
		want    Verdict
		why     Reason
		empty   bool
	}{
		{"a name that a rule has, whatever its port", "example.com", closed, typeA, Allowed, AttestedName, false},
		{"letters and the final dot do not count", "EXAMPLE.com.", closed, typeA, Allowed, AttestedName, false},
		{"keys for encrypted names are not told", "example.com", closed, typeHTTPS, Allowed, AttestedName, true},
		{"a name below an exact one", "x.example.com", closed, typeA, Denied, NoRule, false},
		{"but of a service", "_imap._tcp.example.com", closed, typeSRV, Allowed, AttestedName, false},
		{"a service's name as another type", "_imap._tcp.example.com", closed, typeA, Denied, NoRule, false},
		{"a name that only looks like a service's", "_aaaaaaaaaaaaaaaaaaaaaa._tcp.example.com", closed, typeSRV, Denied, NoRule, false},
		{"below a domain", "a.b.wild.test", closed, typeA, Allowed, AttestedName, false},
		{"the domain itself", "wild.test", closed, typeA, Denied, NoRule, false},
		{"the name of an allowed address", "1.9.9.9.in-addr.arpa", closed, 12, Allowed, RuleAllow, false},
		{"that of another", "8.8.8.8.in-addr.arpa", closed, 12, Denied, NoRule, false},
		{"a network wider than the rule", "9.9.in-addr.arpa", closed, 12, Denied, NoRule, false},
		{"an IPv6 network", "0.0.7.4.6.0.6.2.ip6.arpa", closed, 12, Allowed, RuleAllow, false},
		{"a private address", "1.0.0.10.in-addr.arpa", open, 12, Denied, FloorSpecial, false},
		{"link-local", "0.8.e.f.ip6.arpa", open, 12, Denied, FloorSpecial, false},
		{"data in place of an address", "secret.in-addr.arpa", open, 12, Denied, NoName, false},
		{"the zone itself", "ip6.arpa", open, 12, Denied, NoName, false},
		{"public", "example.org", open, typeA, Allowed, DefaultPublic, false},
		{"denied", "x.evil.test", open, typeA, Denied, RuleDeny, false},
		{"denied for a port only", "mail.test", open, typeA, Allowed, DefaultPublic, false},
		{"localhost", "a.localhost", open, typeA, Denied, FloorName, false},
		{"metadata", "metadata.google.internal", open, typeA, Denied, FloorName, false},
		{"no name", "a b", open, typeA, Denied, NoName, false},
		{"an address in place of a name", "1.2.3.4", open, typeA, Denied, NoName, false},
		{"public, with everything denied", "example.org", Spec{Default: Public, Deny: []string{"0.0.0.0/0", "::/0"}}, typeA, Denied, NoRule, false},
		{"closed, with everything allowed", "example.org", Spec{Allow: []string{"0.0.0.0/0:443"}}, typeA, Allowed, DefaultPublic, false},
		{"HTTPS without rules by name", "example.org", Spec{Default: Public}, typeHTTPS, Allowed, DefaultPublic, false},
	} {
		p, err := Compile(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		d := p.JudgeDNS(c.q, c.qtype)
		if d.Verdict != c.want || d.Reason != c.why || d.Empty != c.empty || (d.Text == "") != (d.Verdict == Allowed) {
			t.Errorf("%s: got %+v, want %s, %s", c.name, d, c.want, c.why)
		}
	}
}

func TestJudgeName(t *testing.T) {
	closed := Spec{Allow: []string{"example.com:443", "9.9.9.0/24:80"}}
	open := Spec{Default: Public, Deny: []string{"evil.test"}}
	for _, c := range []struct {
		what, name string
		port       uint16
		spec       Spec
		want       Verdict
	}{
		{"allowed", "example.com", 443, closed, Allowed},
		{"another port", "example.com", 80, closed, Denied},
		{"another name", "evil.test", 443, closed, Denied},
		{"an address rule tells nothing of names", "evil.test", 80, closed, Denied},
		{"an address as a name", "9.9.9.9", 80, closed, Denied},
		{"public", "example.org", 443, open, Allowed},
		{"denied", "EVIL.test.", 443, open, Denied},
		{"the host's own name", HostName, 443, open, Denied},
		{"metadata", "metadata.google.internal", 80, open, Denied},
		{"nothing", "", 443, open, Denied},
	} {
		p, err := Compile(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if d := p.JudgeName(c.name, c.port); d.Verdict != c.want {
			t.Errorf("%s: got %+v, want %s", c.what, d, c.want)
		}
	}
}

// If a name was read, only that name counts.
func TestAForeignNameIsNoneOfTheAttestedOnes(t *testing.T) {
	p, err := Compile(Spec{Allow: []string{"good.test:443"}})
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Protocol: TCP, Addr: netip.MustParseAddrPort("93.184.216.34:443"), Facts: know("good.test", "93.184.216.34"), Now: noon}
	if d := p.Judge(q); d.Verdict != Allowed || !d.Peek {
		t.Errorf("before it is read: %+v", d)
	}
	q.Name = "evil.test"
	if d := p.Judge(q); d.Verdict != Denied {
		t.Errorf("with another name: %+v", d)
	}
	q.Name = "Good.test."
	if d := p.Judge(q); d.Verdict != Allowed || d.Peek {
		t.Errorf("with its name: %+v", d)
	}
	q.Addr = netip.MustParseAddrPort("10.0.0.1:443")
	if d := p.Judge(q); d.Verdict != Denied || d.Reason != FloorSpecial {
		t.Errorf("that resolved to a private address: %+v", d)
	}
}
