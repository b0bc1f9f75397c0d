package netpolicy

import "testing"

// A tenant's limits end at four times the defaults, or at the limits in the operator's ceiling.
func TestATenantsLimitsHaveACeiling(t *testing.T) {
	huge := Limits{Flows: mostFlows, FlowsPerSecond: mostPerSecond, DNSPerSecond: mostPerSecond, BytesPerSecond: 1 << 40}
	for _, c := range []struct {
		name    string
		grant   HostGrant
		asked   Limits
		ceiling *Spec
		want    Limits
		cuts    int
	}{
		{"a tenant", HostGrant{}, huge, nil, Limits{4096, 1024, 400, 1 << 40}, 3},
		{"defaults", HostGrant{}, Limits{}, nil, Limits{}, 0},
		{"less than the ceiling", HostGrant{}, Limits{Flows: 4096, DNSPerSecond: 1}, nil, Limits{Flows: 4096, DNSPerSecond: 1}, 0},
		{"the operator's ceiling is wider", HostGrant{}, huge, &Spec{Limits: Limits{Flows: 20000}}, Limits{20000, 1024, 400, 1 << 40}, 3},
		{"and narrower", HostGrant{}, huge, &Spec{Limits: Limits{DNSPerSecond: 7}}, Limits{4096, 1024, 7, 1 << 40}, 3},
		{"an operator's key", HostGrant{AnyLimits: true}, huge, nil, huge, 0},
		{"the operator", HostGrant{All: true}, huge, nil, huge, 0},
	} {
		got, cuts, err := c.grant.Granted(Spec{Limits: c.asked}, c.ceiling)
		if err != nil || got.Limits != c.want || len(cuts) != c.cuts {
			t.Errorf("%s: got %+v, cut %v, %v", c.name, got.Limits, cuts, err)
		}
	}
}
