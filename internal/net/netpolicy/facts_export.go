package netpolicy

import (
	"net/netip"
	"time"
)

// Exported is a fact in a form for the clones of a snapshot. It contains the remaining time instead
// of the expiry, because a clone's guest continues where the snapshot stopped.
type Exported struct {
	Name    string     `json:"name"`    // as resolved by the guest
	Addr    netip.Addr `json:"addr"`    // an address of the name
	Seconds int        `json:"seconds"` // remaining validity, rounded up; at least 1
}

// Export returns all current facts.
func (f *Facts) Export(now time.Time) []Exported {
	clone := f.Clone(now)
	if clone.inherited == nil {
		return nil
	}
	all := make([]Exported, 0, clone.inherited.n)
	for _, list := range clone.inherited.byAddr {
		for _, a := range list {
			if left := a.expires.Sub(now); left > 0 {
				all = append(all, Exported{a.name, a.addr, int(left/time.Second) + 1})
			}
		}
	}
	return all
}

// longestExport limits the validity of an imported fact.
const longestExport = 24 * time.Hour

// Import returns the initial facts of a clone. It skips invalid entries.
func Import(all []Exported, now time.Time) *Facts {
	in := &inheritedFacts{byAddr: map[netip.Addr][]attested{}}
	for _, e := range all {
		name, err := CanonicalName(e.Name)
		if err != nil || !e.Addr.IsValid() || e.Seconds <= 0 || in.n >= MaxFacts {
			continue
		}
		addr := Unwrap(e.Addr)
		if len(in.byAddr[addr]) >= maxNames {
			continue
		}
		left := min(max(time.Duration(min(e.Seconds, 1<<20))*time.Second, MinTTL), longestExport)
		in.byAddr[addr] = append(in.byAddr[addr], attested{fact{name, addr}, now.Add(left)})
		in.n++
	}
	if in.n == 0 {
		return &Facts{}
	}
	return &Facts{inherited: in}
}
