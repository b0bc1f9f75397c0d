package netpolicy

import "fmt"

// tenantLimits are the highest limits of a tenant's policy: four times each default. A limit in the
// operator's ceiling replaces them. Bytes are unlimited by default, so only the operator's ceiling
// limits them.
var tenantLimits = Limits{
	Flows:          4 * DefaultFlows,
	FlowsPerSecond: 4 * DefaultFlowsPerSecond,
	DNSPerSecond:   4 * DefaultDNSPerSecond,
}

// Granted returns the part of a policy allowed to a caller with this grant: its granted ports of
// the host, and limits up to the tenants' limits. The operator's ceiling may cut more. ceiling may
// be nil. An invalid rule is an error.
func (g HostGrant) Granted(s Spec, ceiling *Spec) (Spec, []Cut, error) {
	out, cuts, err := g.Cut(s)
	if err != nil || g.All || g.AnyLimits {
		return out, cuts, err
	}
	most := tenantLimits
	if ceiling != nil {
		most = most.replacedBy(ceiling.Limits)
	}
	var cut []Cut
	out.Limits, cut = out.Limits.lowered(most)
	return out, append(cuts, cut...), nil
}

// replacedBy returns l with the values set in other.
func (l Limits) replacedBy(other Limits) Limits {
	if other.Flows != 0 {
		l.Flows = other.Flows
	}
	if other.FlowsPerSecond != 0 {
		l.FlowsPerSecond = other.FlowsPerSecond
	}
	if other.DNSPerSecond != 0 {
		l.DNSPerSecond = other.DNSPerSecond
	}
	return l
}

// lowered lowers each value to most. Unset values are defaults and stay.
func (l Limits) lowered(most Limits) (Limits, []Cut) {
	var cuts []Cut
	for _, one := range []struct {
		name  string
		value *int
		most  int
	}{
		{"flows", &l.Flows, most.Flows},
		{"flows_per_second", &l.FlowsPerSecond, most.FlowsPerSecond},
		{"dns_per_second", &l.DNSPerSecond, most.DNSPerSecond},
	} {
		if *one.value > one.most {
			*one.value = one.most
			cuts = append(cuts, Cut{Rule: "limits: " + one.name, Partly: true,
				Text: fmt.Sprintf("a tenant has at most %d", one.most)})
		}
	}
	return l, cuts
}
