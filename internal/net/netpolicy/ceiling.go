package netpolicy

import (
	"slices"
)

// Cut is a part of a policy that its ceiling does not allow.
type Cut struct {
	Rule string // rule as its user wrote it; "default: public" for the default
	// Partly is set if a part of it is allowed. Judge then decides flow by flow.
	Partly bool
	Text   string // one sentence for people

	minor bool // too small to report; used by Narrow
}

// CutTo cuts a policy to a ceiling. The returned Spec is the one to show and to store. Rules
// outside the ceiling are gone. Rules partly inside it are narrower if the narrower part can be
// written as rules. The Spec may still request more than the ceiling allows; the Cuts list this. To
// enforce the ceiling, compile the Spec with the ceiling in its Bounds. An invalid rule in either
// policy is an error.
func CutTo(ceiling, spec Spec) (Spec, []Cut, error) {
	out, cuts, err := cutTo(ceiling, spec)
	return out, slices.DeleteFunc(cuts, func(c Cut) bool { return c.minor }), err
}

func cutTo(ceiling, spec Spec) (Spec, []Cut, error) {
	if _, err := compileProxy(spec.Proxy, Bounds{}); err != nil {
		return Spec{}, nil, err
	}
	c, err := compilePart(&ceiling, "")
	if err != nil {
		return Spec{}, nil, err
	}
	s, err := compilePart(&spec, "")
	if err != nil {
		return Spec{}, nil, err
	}
	out := spec
	out.Allow = nil
	var cuts []Cut
	for i := range s.allow.rules {
		given, cut := c.give(&s.allow.rules[i])
		out.Allow = append(out.Allow, given...)
		if cut != nil {
			cuts = append(cuts, *cut)
		}
	}
	if s.public {
		cuts = append(cuts, cutDefault(&out, c, s)...)
	}
	if !s.public && s.resolvesAny && (!c.resolvesAny || c.denyNames) {
		cuts = append(cuts, Cut{Rule: "names", Partly: true, minor: true})
	}
	out.Limits = spec.Limits.orDefaults().atMost(ceiling.Limits)
	if out.Limits == spec.Limits.orDefaults() {
		out.Limits = spec.Limits
	} else {
		cuts = append(cuts, Cut{Rule: "limits", Partly: true, Text: "the ceiling's limits are lower"})
	}
	return out, cuts, nil
}

// cutDefault handles a public policy.
func cutDefault(out *Spec, c, s *part) []Cut {
	if c.public {
		for i := range c.deny.rules {
			if r := &c.deny.rules[i]; s.deny.coveredBy(r, -1) == nil {
				return []Cut{{Rule: "default: public", Partly: true, Text: "the ceiling denies " + r.Text + ", and maybe more"}}
			}
		}
		if (c.allowNames || c.denyNames) && !s.allowNames && !s.denyNames {
			return []Cut{{Rule: "default: public", Partly: true, Text: "the ceiling has rules by name, and refuses QUIC"}}
		}
		return nil
	}
	if c.allow.some(func(r *Rule) bool { public, others := r.publicPart(); return public && others }) {
		// Adding such a rule would allow more than was requested. The ceiling decides flow by flow.
		return []Cut{{Rule: "default: public", Partly: true, Text: "the ceiling allows only its allow rules"}}
	}
	out.Default = Deny
	for i := range c.allow.rules {
		r := &c.allow.rules[i]
		if public, _ := r.publicPart(); !public { // default: public does not request it
			continue
		}
		if !s.deny.some(func(d *Rule) bool { return mayOverlap(d, r) }) && !slices.Contains(out.Allow, r.Text) {
			out.Allow = append(out.Allow, r.Text)
		}
	}
	return []Cut{{Rule: "default: public", Partly: len(c.allow.rules) > 0,
		Text: "the ceiling allows only its allow rules"}}
}

// give returns the part of an allow rule that a ceiling allows: the rule, narrower rules, or no
// rules.
func (one *part) give(r *Rule) (given []string, cut *Cut) {
	if one.allow.coveredBy(r, -1) != nil {
		return []string{r.Text}, nil
	}
	if one.public {
		return one.givePublic(r)
	}
	return one.giveNamed(r, "no rule of the ceiling allows it")
}

// giveNamed returns the part of a rule that the ceiling's allow rules allow. none is the reason in
// the Cut if there is no such part.
func (one *part) giveNamed(r *Rule, none string) (given []string, cut *Cut) {
	vague := false
	for i := range one.allow.rules {
		o := &one.allow.rules[i]
		if narrow, ok := intersect(o, r); ok {
			if text := narrow.String(); !slices.Contains(given, text) {
				given = append(given, text)
			}
		} else if mayOverlap(o, r) {
			vague = true
		}
	}
	switch {
	case vague:
		return []string{r.Text}, &Cut{Rule: r.Text, Partly: true, Text: "the ceiling decides by the resolved address"}
	case len(given) > 0:
		return given, &Cut{Rule: r.Text, Partly: true, Text: "the ceiling gives a part of it"}
	}
	return nil, &Cut{Rule: r.Text, Text: none}
}

// publicPart reports whether a rule includes public addresses, and whether it includes others.
// Names count as public.
func (r *Rule) publicPart() (public, others bool) {
	switch {
	case r.isHost():
		return false, true
	case r.Kind == Addresses:
		return publicPart(r.Prefix)
	}
	return true, false
}

func (one *part) givePublic(r *Rule) (given []string, cut *Cut) {
	public, others := r.publicPart()
	if !public {
		return one.giveNamed(r, "the ceiling gives public addresses only")
	}
	if by := one.deny.coveredBy(r, -1); by != nil {
		why := "the ceiling's rule " + by.Text + " denies "
		if !one.allow.some(func(a *Rule) bool { return mayOverlap(a, r) }) {
			return nil, &Cut{Rule: r.Text, Text: why + "it"}
		}
		return []string{r.Text}, &Cut{Rule: r.Text, Partly: true, Text: why + "a part of it"}
	}
	for i := range one.deny.rules {
		if d := &one.deny.rules[i]; mayOverlap(d, r) {
			why := "the ceiling's rule " + d.Text + " may deny a part of it"
			return []string{r.Text}, &Cut{Rule: r.Text, Partly: true, Text: why}
		}
	}
	if others {
		return []string{r.Text}, &Cut{Rule: r.Text, Partly: true, minor: true, Text: "the ceiling gives its public addresses"}
	}
	if one.refusesUnnamed(r) {
		return []string{r.Text}, &Cut{Rule: r.Text, Partly: true, minor: r.isDomain() && r.Low == 0,
			Text: "the ceiling refuses rules that evade its name rules"}
	}
	return []string{r.Text}, nil
}

// refusesUnnamed reports whether a rule matches QUIC to an address or other resolvers, and the
// policy refuses these to protect its rules by name.
func (one *part) refusesUnnamed(r *Rule) bool {
	quic := (one.allowNames || one.denyNames) && !r.isDomain() && r.covers(UDP, 443)
	elsewhere := func(port uint16) bool { return one.denyNames && (r.covers(TCP, port) || r.covers(UDP, port)) }
	return quic || elsewhere(53) || elsewhere(853)
}

// coveredBy returns a rule of the set that covers all of r, but not the rule at index except.
func (s *ruleSet) coveredBy(r *Rule, except int) (found *Rule) {
	look := func(values []int) bool {
		for _, i := range values {
			if o := &s.rules[i]; i != except && coversPorts(o, r) && coversHost(o, r) {
				found = o
				return true
			}
		}
		return false
	}
	switch r.Kind {
	case Addresses:
		s.addresses.walk(r.Prefix.Addr(), look)
	case Exact:
		if !look(s.exact[r.Name]) {
			s.walkAbove(r.Name, look)
		}
	case Below:
		if !look(s.below[r.Name]) {
			s.walkAbove(r.Name, look)
		}
	}
	return found
}

// coversHost reports whether the host of o includes the host of r.
func coversHost(o, r *Rule) bool {
	switch {
	case o.isHost() != r.isHost():
		return false
	case o.Kind == Addresses || r.Kind == Addresses:
		return o.Kind == r.Kind && o.Prefix.Bits() <= r.Prefix.Bits() && o.Prefix.Contains(r.Prefix.Addr())
	case o.Kind == Exact:
		return r.Kind == Exact && o.Name == r.Name
	case r.Kind == Below && o.Name == r.Name:
		return true
	}
	return isBelow(r.Name, o.Name)
}

func isBelow(name, domain string) bool {
	return len(name) > len(domain) && name[len(name)-len(domain):] == domain && name[len(name)-len(domain)-1] == '.'
}

// coversPorts reports whether o includes all ports and protocols of r.
func coversPorts(o, r *Rule) bool {
	if o.Protocol != 0 && o.Protocol != r.Protocol {
		return false
	}
	return o.Low == 0 || r.Low != 0 && o.Low <= r.Low && r.High <= o.High
}

// mayOverlap reports whether a flow can match both rules. A name may resolve to any address.
func mayOverlap(o, r *Rule) bool {
	if _, ok := meetPorts(o, r); !ok {
		return false
	}
	if o.isHost() != r.isHost() {
		return false
	}
	if (o.Kind == Addresses) != (r.Kind == Addresses) {
		return true
	}
	return o.Kind == Addresses && o.Prefix.Overlaps(r.Prefix) || coversHost(o, r) || coversHost(r, o)
}

// intersect returns the intersection of both rules. A name and an address have no intersection,
// although they may overlap.
func intersect(o, r *Rule) (Rule, bool) {
	out, ok := meetPorts(o, r)
	if !ok {
		return Rule{}, false
	}
	host := r
	switch {
	case coversHost(o, r):
	case coversHost(r, o):
		host = o
	default:
		return Rule{}, false
	}
	out.Kind, out.Name, out.Prefix = host.Kind, host.Name, host.Prefix
	return out, true
}

// meetPorts returns a rule without a host, with the ports and protocols of both rules.
func meetPorts(o, r *Rule) (Rule, bool) {
	if o.Protocol != 0 && r.Protocol != 0 && o.Protocol != r.Protocol {
		return Rule{}, false
	}
	out := Rule{Protocol: max(o.Protocol, r.Protocol), Low: max(o.Low, r.Low), High: o.High}
	if o.Low == 0 || r.Low != 0 && r.High < o.High {
		out.High = r.High
	}
	return out, out.Low <= out.High
}
