package netpolicy

import (
	"fmt"
	"net/netip"
	"strings"
)

// Warning is about a rule that is right and does not do what it seems to.
type Warning struct {
	List  string // allow or deny
	Index int    // in the list, from 0
	Rule  string // as it was written
	Text  string // one sentence
}

func (w Warning) String() string { return fmt.Sprintf("%s rule %q: %s", w.List, w.Rule, w.Text) }

// Lint says which rules never act, and which open or close something else than they seem to.
// The floor may be nil. A Spec that does not compile is an error.
func Lint(spec Spec, floor *Floor) ([]Warning, error) {
	one, err := compilePart(&spec, "")
	if err != nil {
		return nil, err
	}
	l := linter{one: one, floor: floor}
	for i := range one.allow.rules {
		l.allow(i, &one.allow.rules[i])
	}
	for i := range one.deny.rules {
		l.deny(i, &one.deny.rules[i])
	}
	return l.found, nil
}

type linter struct {
	one   *part
	floor *Floor
	found []Warning
}

func (l *linter) warn(list string, i int, r *Rule, format string, args ...any) {
	l.found = append(l.found, Warning{list, i, r.Text, fmt.Sprintf(format, args...)})
}

func (l *linter) allow(i int, r *Rule) {
	if why := l.closed(r); why != "" {
		l.warn("allow", i, r, "never acts: %s", why)
		return
	}
	if by := l.one.allow.coveredBy(r, i); by != nil {
		l.warn("allow", i, r, "is not needed: the rule %q has all of it", by.Text)
		return
	}
	switch {
	case r.isHost():
	case l.one.public && !l.one.deny.some(func(d *Rule) bool { return mayOverlap(d, r) }):
		l.warn("allow", i, r, "never acts: the default is public, and no deny rule speaks of the same")
	case r.isDomain() && r.Protocol == UDP && r.Low == 443 && r.High == 443:
		l.warn("allow", i, r, "never acts: with rules by name UDP port 443 is refused, as QUIC hides the name")
	case r.Kind == Below && !strings.Contains(r.Name, "."):
		l.warn("allow", i, r, "opens all of .%s", r.Name)
	}
}

func (l *linter) deny(i int, r *Rule) {
	switch by := l.one.allow.coveredBy(r, -1); {
	case !l.one.public:
		l.warn("deny", i, r, "never acts: the default is deny, and allow beats deny")
		return
	case r.isHost() && by == nil:
		l.warn("deny", i, r, "is not needed: only an allow rule opens %s", HostName)
		return
	case by != nil:
		l.warn("deny", i, r, "never acts: the allow rule %q beats it", by.Text)
		return
	}
	if why := l.closed(r); why != "" {
		l.warn("deny", i, r, "is not needed: %s", why)
		return
	}
	if by := l.one.deny.coveredBy(r, i); by != nil {
		l.warn("deny", i, r, "is not needed: the rule %q has all of it", by.Text)
		return
	}
	if r.isAll() && !l.deniesOther(r) {
		l.warn("deny", i, r, "says nothing of %s; default: deny closes both", otherFamily(r))
	}
}

// closed says why the floor has all of a rule closed.
func (l *linter) closed(r *Rule) string {
	if r.Kind != Addresses {
		if r.isHost() && !l.floor.HasHostPorts() {
			return "the operator has opened no port of the host"
		}
		_, why := l.floor.CheckName(r.Name)
		return why
	}
	first, why := l.floor.CheckAddr(r.Prefix.Addr())
	last, _ := l.floor.CheckAddr(lastOf(r.Prefix))
	if first == "" || last == "" || !insideSpecial(r.Prefix) && !r.Prefix.IsSingleIP() || r.Prefix.Contains(HostAddr) {
		return ""
	}
	if !r.Prefix.IsSingleIP() && l.floor != nil && l.floor.opensIn(r.Prefix) {
		return ""
	}
	return why
}

func insideSpecial(p netip.Prefix) bool {
	for _, s := range specials {
		if s.prefix.Bits() <= p.Bits() && s.prefix.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// opensIn reports whether the operator opened a part of a network.
func (f *Floor) opensIn(p netip.Prefix) bool {
	for _, n := range f.private.nodes {
		if n.prefix.Overlaps(p) {
			return true
		}
	}
	return false
}

// lastOf is the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (l *linter) deniesOther(r *Rule) bool {
	return l.one.deny.some(func(d *Rule) bool { return d.isAll() && d.Prefix.Addr().Is4() != r.Prefix.Addr().Is4() })
}

func otherFamily(r *Rule) string {
	if r.Prefix.Addr().Is4() {
		return "IPv6"
	}
	return "IPv4"
}
