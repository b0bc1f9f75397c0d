package netpolicy

import (
	"net/netip"
	"slices"
	"strings"
)

// ruleSet finds the rules of one list that speak of an address or of a name.
type ruleSet struct {
	rules     []Rule
	exact     map[string][]int // rules by their name
	below     map[string][]int // rules *.domain by their domain
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

// byAddr is a rule with the smallest network that has an unwrapped address, for the port.
func (s *ruleSet) byAddr(a netip.Addr, proto Protocol, port uint16) (found *Rule) {
	s.addresses.walk(a, func(values []int) bool {
		found = s.first(values, proto, port)
		return found != nil
	})
	return found
}

// byName is a rule of a canonical name, for the port; the exact name goes first.
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

// anyOfName is a rule of a name, whatever its ports.
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

// wholeName is a rule of a name that leaves no port out.
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

// walkAbove goes through the rules *.domain that a name is below.
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

// some reports whether a rule has the property.
func (s *ruleSet) some(has func(*Rule) bool) bool {
	for i := range s.rules {
		if has(&s.rules[i]) {
			return true
		}
	}
	return false
}

// isDomain tells rules that decide by facts. The host's own name is none of them: nobody
// but us says what it resolves to.
func (r *Rule) isDomain() bool { return r.Kind == Below || r.Kind == Exact && !r.isHost() }

// isHost tells rules that name the host, which nothing else opens.
func (r *Rule) isHost() bool { return r.Kind == Exact && r.Name == HostName }

// isAll tells 0.0.0.0/0 and ::/0.
func (r *Rule) isAll() bool { return r.Kind == Addresses && r.Prefix.Bits() == 0 }

type portRange struct{ low, high uint16 }

// portsOfNames are the TCP ports that rules by domain speak of, each range once.
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
