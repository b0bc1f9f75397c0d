package netpolicy

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Types of questions with special rules, by their number in the DNS.
const (
	typeSRV   = 33
	typeSVCB  = 64
	typeHTTPS = 65
)

// Zone is forkd's own zone: the host and the members of private networks. Its names are never asked
// upstream.
const Zone = "forkd.internal"

// JudgeDNS decides whether a guest may resolve a name. Denied names are not asked upstream, because
// the question itself would carry data out.
func (p *Policy) JudgeDNS(name string, qtype uint16) DNSDecision {
	n, err := CanonicalName(name)
	if err != nil {
		return DNSDecision{Reason: NoName, Text: err.Error()}
	}
	if n == Zone || strings.HasSuffix(n, "."+Zone) {
		return p.judgeHostName(n)
	}
	if reason, text := p.floor.CheckName(n); reason != "" {
		return DNSDecision{Reason: reason, Text: text}
	}
	if net, isReverse := reverseName(n); isReverse {
		return p.judgeReverse(n, net)
	}
	d := p.allDNS(func(one *part) DNSDecision { return one.judgeDNS(n, qtype) })
	d.Empty = d.Verdict == Allowed && p.domain && (qtype == typeSVCB || qtype == typeHTTPS)
	return d
}

func (p *Policy) allDNS(ask func(*part) DNSDecision) DNSDecision {
	var sum DNSDecision
	for i, one := range p.parts {
		d := ask(one)
		if d.Verdict != Allowed {
			if one.what != "" {
				d.Reason, d.Text = Ceiling, one.what+": "+d.Text
			}
			return d
		}
		if i == 0 {
			sum = d
		}
	}
	return sum
}

func (p *Policy) judgeHostName(n string) DNSDecision {
	if n != HostName {
		return DNSDecision{Reason: FloorName, Text: n + " does not exist"}
	}
	if !p.floor.HasHostPorts() {
		return DNSDecision{Reason: FloorHost, Text: "the operator has opened no port of the host"}
	}
	d := p.allDNS(func(one *part) DNSDecision { return one.judgeHostDNS() })
	d.Local = d.Verdict == Allowed
	return d
}

// judgeHostDNS follows the rule of judgeHostPort: only a rule that names the host opens it.
func (one *part) judgeHostDNS() DNSDecision {
	named := one.allow.exact[HostName]
	if len(named) == 0 {
		return DNSDecision{Reason: NoRule, Text: "no rule allows " + HostName + ", which has to be named"}
	}
	return DNSDecision{Verdict: Allowed, Reason: HostPort, Rule: one.allow.rules[named[0]].Text}
}

func (one *part) judgeDNS(name string, qtype uint16) DNSDecision {
	if r := one.allow.anyOfName(name); r != nil {
		return DNSDecision{Verdict: Allowed, Reason: AttestedName, Rule: r.Text}
	}
	if qtype == typeSRV {
		if host, isService := serviceHost(name); isService {
			return one.judgeDNS(host, 0)
		}
	}
	if r := one.deny.wholeName(name); r != nil && one.public {
		return DNSDecision{Reason: RuleDeny, Rule: r.Text, Text: fmt.Sprintf("the rule %q denies %s", r.Text, name)}
	}
	if one.resolvesAny {
		return DNSDecision{Verdict: Allowed, Reason: DefaultPublic}
	}
	return DNSDecision{Reason: NoRule, Text: "no rule allows " + name}
}

// serviceHost returns the host of _service._proto.host, see RFC 2782.
func serviceHost(name string) (host string, ok bool) {
	parts := strings.SplitN(name, ".", 3)
	if len(parts) < 3 || len(parts[0]) < 2 || len(parts[0]) > 16 || parts[0][0] != '_' {
		return "", false
	}
	return parts[2], slices.Contains([]string{"_tcp", "_udp", "_tls"}, parts[1])
}

// judgeReverse decides about reverse names of addresses. Addresses of the floor are not asked
// upstream: an upstream has no records for them, or records that the guest must not see.
func (p *Policy) judgeReverse(n string, net netip.Prefix) DNSDecision {
	if !net.IsValid() {
		return DNSDecision{Reason: NoName, Text: n + " is no name of an address"}
	}
	if reason, text := p.floor.CheckAddr(net.Addr()); reason != "" {
		return DNSDecision{Reason: reason, Text: text}
	}
	net = unwrapPrefix(net)
	return p.allDNS(func(one *part) DNSDecision {
		var found *Rule
		one.allow.addresses.walk(net.Addr(), func(values []int) bool {
			if r := &one.allow.rules[values[0]]; r.Prefix.Bits() <= net.Bits() {
				found = r
			}
			return found != nil
		})
		switch {
		case found != nil:
			return DNSDecision{Verdict: Allowed, Reason: RuleAllow, Rule: found.Text}
		case one.resolvesAny:
			return DNSDecision{Verdict: Allowed, Reason: DefaultPublic}
		}
		return DNSDecision{Reason: NoRule, Text: "no rule allows " + net.Addr().String()}
	})
}

// reverseName returns the network of a name in in-addr.arpa or ip6.arpa. If the name is in one of
// the zones but stands for no network, the result is not valid.
func reverseName(n string) (net netip.Prefix, isReverse bool) {
	if rest, ok := cutZone(n, "in-addr.arpa"); ok {
		return reverse4(rest), true
	}
	if rest, ok := cutZone(n, "ip6.arpa"); ok {
		return reverse6(rest), true
	}
	return netip.Prefix{}, false
}

func cutZone(n, zone string) (rest string, ok bool) {
	if n == zone {
		return "", true
	}
	return strings.CutSuffix(n, "."+zone)
}

func reverse4(rest string) netip.Prefix {
	if rest == "" {
		return netip.Prefix{}
	}
	labels := strings.Split(rest, ".")
	if len(labels) > 4 {
		return netip.Prefix{}
	}
	var b [4]byte
	for i, l := range labels {
		v, err := strconv.ParseUint(l, 10, 8)
		if err != nil || strconv.FormatUint(v, 10) != l {
			return netip.Prefix{}
		}
		b[len(labels)-1-i] = byte(v)
	}
	return netip.PrefixFrom(netip.AddrFrom4(b), 8*len(labels))
}

func reverse6(rest string) netip.Prefix {
	if rest == "" {
		return netip.Prefix{}
	}
	labels := strings.Split(rest, ".")
	if len(labels) > 32 {
		return netip.Prefix{}
	}
	digits := []byte(strings.Repeat("0", 32))
	for i, l := range labels {
		if len(l) != 1 {
			return netip.Prefix{}
		}
		digits[len(labels)-1-i] = l[0]
	}
	var b [16]byte
	if _, err := hex.Decode(b[:], digits); err != nil {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(netip.AddrFrom16(b), 4*len(labels))
}

// JudgeAlias decides about the canonical name behind an allowed alias. A deny rule by name closes
// it, too. An allow rule need not name it, because the guest did not choose it.
func (p *Policy) JudgeAlias(name string) DNSDecision {
	if reason, text := p.floor.CheckName(name); reason != "" {
		return DNSDecision{Reason: reason, Text: text}
	}
	return p.allDNS(func(one *part) DNSDecision {
		if r := one.deny.wholeName(name); r != nil && one.public && one.allow.anyOfName(name) == nil {
			return DNSDecision{Reason: RuleDeny, Rule: r.Text, Text: fmt.Sprintf("the rule %q denies %s", r.Text, name)}
		}
		return DNSDecision{Verdict: Allowed}
	})
}

// CheckAddr returns why policies cannot open an address. If they can, the reason is empty.
func (p *Policy) CheckAddr(addr netip.Addr) (Reason, string) { return p.floor.CheckAddr(addr) }
