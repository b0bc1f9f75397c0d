package netpolicy

import (
	"errors"
	"fmt"
	"slices"
)

// Limits of a policy.
const (
	// MaxRules limits the rules of a policy, allow and deny together.
	MaxRules = 10000
	// maxHTTPSPorts limits the peeked ports other than 80 and 443.
	maxHTTPSPorts = 64
	// maxWithin limits the nesting of policies.
	maxWithin = 16
)

// Policy is a compiled Spec, under the floor and its bounding policies. It never changes, and is
// safe for concurrent use.
type Policy struct {
	floor  *Floor
	parts  []*part // the policy itself, then each bounding policy; all must allow
	limits Limits
	https  []uint16 // peeked ports other than 80 and 443, of all parts
	domain bool     // a part has domain rules
	spec   Spec     // of the first part
	sets   headerTable
	signs  map[string]*Signed // by canonical host name
	via    *Via               // the own proxy; may be nil
}

// part is one policy without its bounds.
type part struct {
	what        string // owner of the policy, for texts; empty for the sandbox's own
	public      bool
	allow, deny ruleSet
	allowNames  bool        // there are allow rules by domain, and they have an effect
	denyNames   bool        // there are deny rules by domain, and they have an effect
	namePorts   []portRange // TCP ports of the allow rules by domain
	resolvesAny bool        // names without a matching rule may be resolved
}

// Bounds contains the bounds of a policy.
type Bounds struct {
	Floor   *Floor  // if nil, the floor without exceptions
	Ceiling *Policy // the operator's ceiling; may be nil
}

// Compile compiles a policy without a ceiling over the floor without exceptions.
func Compile(spec Spec) (*Policy, error) { return CompileWithin(spec, Bounds{}) }

// CompileWithin compiles a policy. Its errors name the invalid rule; several errors are joined.
func CompileWithin(spec Spec, b Bounds) (*Policy, error) {
	p := &Policy{floor: b.Floor, spec: spec}
	var err error
	if p.sets, err = compileHeaders(spec.Headers); err != nil {
		return nil, err
	}
	if p.signs, err = compileSign(spec.Sign, p.sets); err != nil {
		return nil, err
	}
	if p.via, err = compileProxy(spec.Proxy, b); err != nil {
		return nil, err
	}
	p.limits = spec.Limits.orDefaults()
	what := ""
	for at, depth := &spec, 0; at != nil; at, depth = at.Within, depth+1 {
		if depth > maxWithin {
			return nil, fmt.Errorf("policies lie within each other more than %d deep", maxWithin)
		}
		one, err := compilePart(at, what)
		if err != nil {
			return nil, err
		}
		p.add(one, at.Limits.orDefaults(), at.HTTPSPorts)
		what = "the policy it was forked under"
	}
	if b.Ceiling != nil {
		for _, c := range b.Ceiling.parts {
			bound := *c
			bound.what = "the operator's ceiling"
			p.add(&bound, b.Ceiling.limits, b.Ceiling.https)
		}
	}
	return p, nil
}

func (p *Policy) add(one *part, l Limits, https []uint16) {
	p.parts = append(p.parts, one)
	p.limits = p.limits.atMost(l)
	p.domain = p.domain || one.allowNames || one.denyNames
	for _, port := range https {
		if !slices.Contains(p.https, port) {
			p.https = append(p.https, port)
		}
	}
}

func compilePart(spec *Spec, what string) (*part, error) {
	public, err := spec.Default.isPublic()
	if err != nil {
		return nil, err
	}
	if err := spec.checkNumbers(); err != nil {
		return nil, err
	}
	allow, err := parseRules("allow", spec.Allow)
	if err != nil {
		return nil, err
	}
	deny, err := parseRules("deny", spec.Deny)
	if err != nil {
		return nil, err
	}
	one := &part{what: what, public: public, allow: newRuleSet(allow), deny: newRuleSet(deny)}
	one.allowNames = one.allow.some((*Rule).isDomain) && !(public && len(deny) == 0)
	one.denyNames = one.deny.some((*Rule).isDomain) && public
	one.namePorts = one.allow.portsOfNames()
	one.resolvesAny = one.allow.some((*Rule).isAll) || public && !one.deniesAll()
	return one, nil
}

// deniesAll reports whether deny rules cover all addresses of both families.
func (one *part) deniesAll() bool {
	var four, six bool
	for i := range one.deny.rules {
		if r := &one.deny.rules[i]; r.isAll() && r.Low == 0 && r.Protocol == 0 {
			four, six = four || r.Prefix.Addr().Is4(), six || r.Prefix.Addr().Is6()
		}
	}
	return four && six
}

func parseRules(list string, texts []string) ([]Rule, error) {
	rules := make([]Rule, 0, len(texts))
	var errs []error
	for i, text := range texts {
		r, err := ParseRule(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", list, i, err))
			continue
		}
		rules = append(rules, r)
	}
	return rules, errors.Join(errs...)
}

// checkNumbers checks the fields other than rules.
func (s *Spec) checkNumbers() error {
	if n := len(s.Allow) + len(s.Deny); n > MaxRules {
		return fmt.Errorf("%d rules are too many: a policy has at most %d", n, MaxRules)
	}
	if len(s.HTTPSPorts) > maxHTTPSPorts {
		return fmt.Errorf("https_ports: %d ports are too many: at most %d", len(s.HTTPSPorts), maxHTTPSPorts)
	}
	if slices.Contains(s.HTTPSPorts, 0) {
		return errors.New("https_ports: 0 is no port; ports are 1 to 65535")
	}
	return s.Limits.check()
}

// Spec returns the source of the policy.
func (p *Policy) Spec() Spec { return p.spec }

// Floor returns the floor of the policy. It may be nil, as a *Floor may be.
func (p *Policy) Floor() *Floor { return p.floor }

// Limits returns the policy's limits with defaults filled in. They do not exceed the limits of a
// bounding policy.
func (p *Policy) Limits() Limits { return p.limits }

// HasDomainRules reports whether names affect decisions. UDP 443 is then refused, and HTTPS and
// SVCB queries get empty answers.
func (p *Policy) HasDomainRules() bool { return p.domain }

// Peeks reports whether the first bytes of a TCP flow to a port are expected to contain a host
// name.
func (p *Policy) Peeks(port uint16) bool {
	return port == 80 || port == 443 || slices.Contains(p.https, port)
}
