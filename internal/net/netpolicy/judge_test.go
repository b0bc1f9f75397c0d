package netpolicy

import (
	"net/netip"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// know returns facts from pairs of a name and an address.
func know(pairs ...string) *Facts {
	f := &Facts{}
	for i := 0; i < len(pairs); i += 2 {
		f.Add(pairs[i], netip.MustParseAddr(pairs[i+1]), 0, noon)
	}
	return f
}

func TestJudge(t *testing.T) {
	web := know("example.com", "93.184.216.34", "cdn.example.net", "93.184.216.34", "evil.test", "6.6.6.6")
	closed := Spec{Allow: []string{"example.com:443", "*.wild.test", "1.1.1.1:53/udp", "9.9.9.0/24"}}
	open := Spec{Default: Public, Deny: []string{"evil.test", "8.8.8.0/24", "smtp.test:25"}, Allow: []string{"8.8.8.8:53"}}
	for _, c := range []struct {
		name  string
		spec  Spec
		proto Protocol
		addr  string
		facts *Facts
		want  Verdict
		why   Reason
		peek  bool
	}{
		{"nothing is allowed by default", Spec{}, TCP, "93.184.216.34:443", web, Denied, NoRule, false},
		{"an attested name allows its port, and is read again", closed, TCP, "93.184.216.34:443", web, Allowed, AttestedName, true},
		{"and no other port", closed, TCP, "93.184.216.34:22", web, Denied, NoRule, false},
		{"an address without a fact may have the name still", closed, TCP, "93.184.216.34:443", nil, NeedName, ReadName, false},
		{"where first bytes tell nothing, no fact is no", closed, TCP, "93.184.216.34:8443", nil, Denied, NoRule, false},
		{"QUIC hides the name, even of an attested address", closed, UDP, "93.184.216.34:443", web, Denied, QUIC, false},
		{"an address rule has its protocol", closed, UDP, "1.1.1.1:53", nil, Allowed, RuleAllow, false},
		{"and no other", closed, TCP, "1.1.1.1:53", nil, Denied, NoRule, false},
		{"a network without a port is open for echo", closed, Echo, "9.9.9.9:0", nil, Allowed, RuleAllow, false},
		{"an address with a port is not", closed, Echo, "1.1.1.1:0", nil, Denied, NoRule, false},
		{"mapped addresses are IPv4", closed, TCP, "[::ffff:9.9.9.9]:1", nil, Allowed, RuleAllow, false},
		{"so are those of NAT64", closed, TCP, "[64:ff9b::9.9.9.9]:1", nil, Allowed, RuleAllow, false},
		{"public lets out, and reads the name where deny rules have some", open, TCP, "93.184.216.34:443", web, Allowed, DefaultPublic, true},
		{"a denied name closes its address", open, TCP, "6.6.6.6:80", web, Denied, RuleDeny, false},
		{"a denied network is closed", open, TCP, "8.8.8.9:53", nil, Denied, RuleDeny, false},
		{"allow beats deny", open, UDP, "8.8.8.8:53", nil, Allowed, RuleAllow, false},
		{"other resolvers would evade deny rules by name", open, UDP, "1.1.1.1:53", nil, Denied, DNSElsewhere, false},
		{"and so would theirs over TLS", open, TCP, "1.1.1.1:853", nil, Denied, DNSElsewhere, false},
		{"without names in rules they are as any address", Spec{Default: Public}, UDP, "1.1.1.1:53", nil, Allowed, DefaultPublic, false},
		{"and so is QUIC", Spec{Default: Public}, UDP, "1.1.1.1:443", nil, Allowed, DefaultPublic, false},
	} {
		p, err := Compile(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		d := p.Judge(Query{Protocol: c.proto, Addr: netip.MustParseAddrPort(c.addr), Facts: c.facts, Now: noon})
		if d.Verdict != c.want || d.Reason != c.why || d.Peek != c.peek {
			t.Errorf("%s: got %+v, want %s, %s, peek %t", c.name, d, c.want, c.why, c.peek)
		}
		if (d.Text == "") != (d.Verdict == Allowed) {
			t.Errorf("%s: the text is %q", c.name, d.Text)
		}
	}
}
