package netpolicy

import (
	"fmt"
	"slices"
	"strings"
)

// HostGrant is the set of host ports that a caller's policies may name as HostName, and the right
// to high limits. The zero value grants none. The operator opens ports of the host to the daemon; a
// grant limits who may use them.
type HostGrant struct {
	// All grants every port opened by the operator.
	All   bool        `json:"all,omitempty"`
	Ports []PortRange `json:"ports,omitempty"` // granted ports, if All is not set
	// AnyLimits grants limits above the tenants' limits. All does, too.
	AnyLimits bool `json:"any_limits,omitempty"`
}

// maxGrantRanges limits the ranges of one grant.
const maxGrantRanges = 64

// ParseHostGrant reads ranges in the form of ParsePortRange.
func ParseHostGrant(texts []string) (HostGrant, error) {
	if len(texts) > maxGrantRanges {
		return HostGrant{}, fmt.Errorf("%d ranges of host ports, want at most %d", len(texts), maxGrantRanges)
	}
	var g HostGrant
	for _, text := range texts {
		r, err := ParsePortRange(text)
		if err != nil {
			return HostGrant{}, err
		}
		g.Ports = append(g.Ports, r)
	}
	return g, nil
}

// Covers reports whether g grants every port granted by other.
func (g HostGrant) Covers(other HostGrant) bool {
	if g.All {
		return true
	}
	if other.All {
		return false
	}
	merged := g.merged()
	return !slices.ContainsFunc(other.Ports, func(r PortRange) bool {
		return !slices.ContainsFunc(merged, func(m PortRange) bool { return m.First <= r.First && r.Last <= m.Last })
	})
}

// merged returns the granted ranges, sorted and with adjacent ranges merged.
func (g HostGrant) merged() []PortRange {
	all := slices.Clone(g.Ports)
	slices.SortFunc(all, func(a, b PortRange) int { return int(a.First) - int(b.First) })
	var out []PortRange
	for _, r := range all {
		if n := len(out); n > 0 && int(r.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// String lists the ranges.
func (g HostGrant) String() string {
	if g.All {
		return "all"
	}
	var texts []string
	for _, r := range g.merged() {
		texts = append(texts, r.String())
	}
	if texts == nil {
		return "none"
	}
	return strings.Join(texts, ", ")
}

// Cut removes rules for ungranted ports of the host from a policy, and narrows partly granted ones.
// Other rules do not reach the host and stay. An invalid rule is an error.
func (g HostGrant) Cut(s Spec) (Spec, []Cut, error) {
	if g.All {
		return s, nil, nil
	}
	allow, cuts := make([]string, 0, len(s.Allow)), []Cut(nil)
	for _, text := range s.Allow {
		r, err := ParseRule(text)
		if err != nil {
			return Spec{}, nil, err
		}
		if !r.isHost() {
			allow = append(allow, text)
			continue
		}
		given, cut := g.cutRule(text, r)
		allow = append(allow, given...)
		if cut != nil {
			cuts = append(cuts, *cut)
		}
	}
	if cuts != nil { // otherwise keep the list as its user wrote it
		s.Allow = allow
	}
	return s, cuts, nil
}

// cutRule returns the granted part of a rule that names the host.
func (g HostGrant) cutRule(text string, r Rule) (given []string, cut *Cut) {
	low, high := r.Low, r.High
	if low == 0 {
		low, high = 1, 65535
	}
	for _, p := range g.merged() {
		if p.First <= low && high <= p.Last {
			return []string{text}, nil
		}
		if first, last := max(low, p.First), min(high, p.Last); first <= last {
			narrow := r
			narrow.Low, narrow.High = first, last
			given = append(given, narrow.String())
		}
	}
	cut = &Cut{Rule: text, Partly: len(given) > 0, Text: "ports of the host need a grant, and the key has none of them"}
	if cut.Partly {
		cut.Text = "the key is granted ports " + g.String() + " of the host"
	}
	return given, cut
}
