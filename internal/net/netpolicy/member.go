package netpolicy

import "fmt"

// JudgeMember decides about a flow to another member of a sandbox's private network, by its name.
// Members may connect to each other, unless a deny rule names the member or *.forkd.internal, in the
// policy or in a bound of it. Allow beats deny. Rules about addresses do not apply.
func (p *Policy) JudgeMember(name string, proto Protocol, port uint16) Decision {
	d := p.all(func(one *part) Decision {
		if r := one.allow.byName(name, proto, port); r != nil {
			return Decision{Verdict: Allowed, Reason: RuleAllow, Rule: r.Text}
		}
		if r := one.deny.byName(name, proto, port); r != nil {
			return Decision{Reason: RuleDeny, Rule: r.Text, Text: fmt.Sprintf("the rule %q denies %s", r.Text, name)}
		}
		return Decision{Verdict: Allowed, Reason: PrivateMember}
	})
	d.Name = name
	return d
}
