package netpolicy

import (
	"fmt"
	"net/netip"
)

// Judge decides about a flow. Call it with each address before dialing it, including resolved ones.
// This defeats names that resolve to closed addresses.
//
//   - Allowed without Peek: dial (Decision.Dial if it is valid) and hand over.
//   - Allowed with Peek, or NeedName: accept the flow, and read the name from its first bytes
//     (SNI or Host). If there is no name, continue if it was Allowed, refuse if it was NeedName.
//     The name must pass JudgeName. Unless Facts.Has the name for the address, resolve it with
//     our own resolver and use that address. Then call Judge again with Query.Name.
//
// Do not use Judge for the gateway's own services (192.0.0.1, fe80::1): it denies them.
func (p *Policy) Judge(q Query) Decision {
	addr, port := Unwrap(q.Addr.Addr()), q.Addr.Port()
	if addr == HostAddr {
		return p.judgeHostPort(q.Protocol, port)
	}
	if reason, text := p.floor.CheckAddr(q.Addr.Addr()); reason != "" {
		return Decision{Reason: reason, Text: text}
	}
	var room [2 * maxNames]string
	names := room[:0]
	if q.Name == "" {
		names = q.Facts.Names(names, addr, q.Now)
	} else {
		name, err := CanonicalName(q.Name)
		if err != nil {
			return Decision{Reason: NoName, Text: err.Error()}
		}
		if reason, text := p.floor.CheckName(name); reason != "" {
			return Decision{Reason: reason, Name: name, Text: text}
		}
		names = append(names, name)
	}
	f := flow{proto: q.Protocol, addr: addr, port: port, names: names}
	f.peeks = q.Name == "" && q.Protocol == TCP && p.Peeks(port)
	return p.all(func(one *part) Decision { return one.judge(&f) })
}

// judgeHostPort decides about HostAddr. Its name needs no fact.
func (p *Policy) judgeHostPort(proto Protocol, port uint16) Decision {
	target, open := p.floor.HostPort(port)
	if !open || proto != TCP && proto != UDP {
		return Decision{Reason: FloorHost, Name: HostName,
			Text: fmt.Sprintf("the operator has not opened %s port %d of the host", proto, port)}
	}
	d := p.all(func(one *part) Decision { return one.judgeHostPort(proto, port) })
	d.Name, d.Peek = HostName, false
	if d.Verdict == Allowed {
		d.Reason, d.Dial = HostPort, target
	}
	return d
}

// judgeHostPort requires an allow rule that names the host. default: public is not enough, because
// services on the host's loopback are not part of the public internet.
func (one *part) judgeHostPort(proto Protocol, port uint16) Decision {
	if r := one.allow.first(one.allow.exact[HostName], proto, port); r != nil {
		return Decision{Verdict: Allowed, Reason: HostPort, Rule: r.Text}
	}
	return Decision{Reason: NoRule,
		Text: fmt.Sprintf("no rule allows %s:%d/%s, which has to be named", HostName, port, proto)}
}

// all asks each part. A part that denies decides, then a part that needs a name.
func (p *Policy) all(ask func(*part) Decision) Decision {
	var sum Decision
	for i, one := range p.parts {
		d := ask(one)
		if d.Verdict == Denied {
			if one.what != "" {
				d.Reason, d.Text = Ceiling, one.what+": "+d.Text
			}
			return d
		}
		switch {
		case i == 0:
			sum = d
		case d.Verdict == NeedName && sum.Verdict != NeedName:
			sum = d
		default:
			if sum.Name == "" {
				sum.Name = d.Name
			}
			sum.Peek = sum.Peek || d.Peek
		}
	}
	if sum.Verdict == NeedName {
		sum.Peek = false
	}
	return sum
}

// flow is a Query with an address that the floor allows.
type flow struct {
	proto Protocol
	addr  netip.Addr
	port  uint16
	names []string // recorded names of the address, or the name read from the flow
	peeks bool     // a name can still be read
}

func (f *flow) String() string {
	if f.proto == Echo {
		return f.addr.String() + " (echo)"
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.addr, f.port), f.proto)
}

// judge decides for one policy alone. Allow beats deny; addresses come before names.
func (one *part) judge(f *flow) Decision {
	if r := one.allow.byAddr(f.addr, f.proto, f.port); r != nil {
		return Decision{Verdict: Allowed, Reason: RuleAllow, Rule: r.Text}
	}
	if f.proto == UDP && f.port == 443 && (one.allowNames || one.denyNames) {
		return Decision{Reason: QUIC, Text: "UDP port 443 hides the names that the policy's rules are about; use TCP"}
	}
	for _, name := range f.names {
		if r := one.allow.byName(name, f.proto, f.port); r != nil {
			return Decision{Verdict: Allowed, Reason: AttestedName, Rule: r.Text, Name: name, Peek: f.peeks}
		}
	}
	d, denied := one.denies(f)
	switch {
	case denied && f.peeks && one.nameMayAllow(f.port):
		return Decision{Verdict: NeedName, Reason: ReadName, Text: "the name of the host decides"}
	case denied:
		return d
	}
	return Decision{Verdict: Allowed, Reason: DefaultPublic, Peek: f.peeks && one.denyNames}
}

// denies decides about a flow without a matching allow rule.
func (one *part) denies(f *flow) (Decision, bool) {
	if r := one.deny.byAddr(f.addr, f.proto, f.port); r != nil {
		return Decision{Reason: RuleDeny, Rule: r.Text, Text: fmt.Sprintf("the rule %q denies %s", r.Text, f)}, true
	}
	if !one.public || !isPublic(f.addr) {
		return Decision{Reason: NoRule, Name: firstOf(f.names), Text: one.noRule(f)}, true
	}
	if d, denied := one.deniesNames(f); denied {
		return d, true
	}
	if one.denyNames && f.proto != Echo && (f.port == 53 || f.port == 853) {
		return Decision{Reason: DNSElsewhere,
			Text: fmt.Sprintf("%s would resolve names past the policy's deny rules; use the gateway's resolver", f)}, true
	}
	return Decision{}, false
}

func (one *part) noRule(f *flow) string {
	if len(f.names) > 0 {
		return fmt.Sprintf("no rule allows %s (%s)", f, f.names[0])
	}
	if one.allowNames {
		return fmt.Sprintf("no rule allows %s, and no name is known for it", f)
	}
	return fmt.Sprintf("no rule allows %s", f)
}

func firstOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// deniesNames reports whether every name of the address is denied.
func (one *part) deniesNames(f *flow) (Decision, bool) {
	var rule *Rule
	for _, name := range f.names {
		r := one.deny.byName(name, f.proto, f.port)
		if r == nil {
			return Decision{}, false
		}
		rule = r
	}
	if rule == nil {
		return Decision{}, false
	}
	name := f.names[len(f.names)-1]
	return Decision{Reason: RuleDeny, Rule: rule.Text, Name: name,
		Text: fmt.Sprintf("the rule %q denies %s", rule.Text, name)}, true
}

// nameMayAllow reports whether an allow rule by domain covers a TCP port.
func (one *part) nameMayAllow(port uint16) bool {
	for _, r := range one.namePorts {
		if port >= r.low && port <= r.high {
			return true
		}
	}
	return false
}

// JudgeName decides about a name read from a TCP flow (SNI, or Host without its port), before it is
// resolved. The final decision is Judge's, with the address.
func (p *Policy) JudgeName(name string, port uint16) Decision {
	n, err := CanonicalName(name)
	if err != nil {
		return Decision{Reason: NoName, Text: err.Error()}
	}
	if n == HostName {
		return Decision{Reason: FloorName, Name: n, Text: n + " is reached by its own address only"}
	}
	if reason, text := p.floor.CheckName(n); reason != "" {
		return Decision{Reason: reason, Name: n, Text: text}
	}
	decided := false
	d := p.all(func(one *part) Decision {
		d, sure := one.judgeName(n, port)
		decided = decided || sure
		return d
	})
	if d.Name = n; d.Verdict == Allowed && !decided {
		return Decision{Reason: NoRule, Name: n, Text: "no rule allows " + n}
	}
	return d
}

// judgeName returns sure if names decide. If only addresses are allowed, it leaves the verdict to
// Judge and to the policies that bound this one.
func (one *part) judgeName(name string, port uint16) (d Decision, sure bool) {
	if r := one.allow.byName(name, TCP, port); r != nil {
		return Decision{Verdict: Allowed, Reason: AttestedName, Rule: r.Text}, true
	}
	if r := one.deny.byName(name, TCP, port); r != nil && one.public {
		return Decision{Reason: RuleDeny, Rule: r.Text, Text: fmt.Sprintf("the rule %q denies %s", r.Text, name)}, true
	}
	if one.public && one.resolvesAny {
		return Decision{Verdict: Allowed, Reason: DefaultPublic}, true
	}
	if one.allow.some(func(r *Rule) bool { return r.Kind == Addresses && r.covers(TCP, port) }) {
		return Decision{Verdict: Allowed, Reason: RuleAllow}, false
	}
	return Decision{Reason: NoRule, Text: fmt.Sprintf("no rule allows %s, port %d", name, port)}, true
}
