package netpolicy

import (
	"net/netip"
	"slices"
	"strings"
)

// ruleSet finds the rules of one list that match an address or a name.
type ruleSet struct {
	rules     []Rule
	exact     map[string][]int // rules by name
	below     map[string][]int // rules *.domain by domain
	addresses prefixTable
}

func newRuleSet(rules []Rule) ruleSet {
	s := ruleSet{rules: rules, exact: map[string][]int{}, below: map[string][]int{}}
	var b prefixBuilder
	for i := range rules {
		switch r := &rules[i]; r.Kind {
		case Exact:
			s.exact[r.Name] = append(s.exact[r.Name], i)
		case Below:
			s.below[r.Name] = append(s.below[r.Name], i)
		case Addresses:
			b.add(r.Prefix, i)
		}
	}
	s.addresses = b.build()
	return s
}

// byAddr returns a matching rule for an unwrapped address and a port, with the smallest network.
func (s *ruleSet) byAddr(a netip.Addr, proto Protocol, port uint16) (found *Rule) {
	s.addresses.walk(a, func(values []int) bool {
		found = s.first(values, proto, port)
		return found != nil
	})
	return found
}

// byName returns a matching rule for a canonical name and a port. It prefers the exact name.
func (s *ruleSet) byName(name string, proto Protocol, port uint16) *Rule {
	if r := s.first(s.exact[name], proto, port); r != nil {
		return r
	}
	var found *Rule
	s.walkAbove(name, func(values []int) bool {
		found = s.first(values, proto, port)
		return found != nil
	})
	return found
}

// anyOfName returns a rule for a name, whatever its ports.
func (s *ruleSet) anyOfName(name string) *Rule {
	if v := s.exact[name]; len(v) > 0 {
		return &s.rules[v[0]]
	}
	var found *Rule
	s.walkAbove(name, func(values []int) bool {
		found = &s.rules[values[0]]
		return true
	})
	return found
}

// wholeName returns a rule for a name that covers all ports.
func (s *ruleSet) wholeName(name string) *Rule {
	whole := func(values []int) *Rule {
		for _, i := range values {
			if s.rules[i].Low == 0 && s.rules[i].Protocol == 0 {
				return &s.rules[i]
			}
		}
		return nil
	}
	if r := whole(s.exact[name]); r != nil {
		return r
	}
	var found *Rule
	s.walkAbove(name, func(values []int) bool {
		found = whole(values)
		return found != nil
	})
	return found
}

// walkAbove visits the rules *.domain that match a name.
func (s *ruleSet) walkAbove(name string, visit func(values []int) bool) {
	if len(s.below) == 0 {
		return
	}
	for {
		_, rest, more := strings.Cut(name, ".")
		if !more {
			return
		}
		if v := s.below[rest]; len(v) > 0 && visit(v) {
			return
		}
		name = rest
	}
}

func (s *ruleSet) first(values []int, proto Protocol, port uint16) *Rule {
	for _, i := range values {
		if s.rules[i].covers(proto, port) {
			return &s.rules[i]
		}
	}
	return nil
}

// some reports whether any rule has the property.
func (s *ruleSet) some(has func(*Rule) bool) bool {
	for i := range s.rules {
		if has(&s.rules[i]) {
			return true
		}
	}
	return false
}

// isDomain reports whether facts decide the rule. The host's own name is excluded, because only
// forkd resolves it.
func (r *Rule) isDomain() bool { return r.Kind == Below || r.Kind == Exact && !r.isHost() }

// isHost reports whether the rule names the host. Only such rules open the host.
func (r *Rule) isHost() bool { return r.Kind == Exact && r.Name == HostName }

// isAll reports whether the rule is for 0.0.0.0/0 or ::/0.
func (r *Rule) isAll() bool { return r.Kind == Addresses && r.Prefix.Bits() == 0 }

type portRange struct{ low, high uint16 }

// portsOfNames returns the TCP ports of rules by domain, each range once.
func (s *ruleSet) portsOfNames() []portRange {
	var ranges []portRange
	for i := range s.rules {
		r := &s.rules[i]
		if !r.isDomain() || r.Protocol != 0 && r.Protocol != TCP {
			continue
		}
		of := portRange{r.Low, r.High}
		if r.Low == 0 {
			return []portRange{{1, 65535}}
		}
		if !slices.Contains(ranges, of) {
			ranges = append(ranges, of)
		}
	}
	return ranges
}
