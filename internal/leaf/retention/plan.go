package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Snapshot is the part of a snapshot that the rules look at.
type Snapshot struct {
	Tag    string
	Owner  string            // tenant; series of two tenants are apart, also with one name
	Source string            // sandbox that it was branched from; may be empty
	Made   time.Time         // creation
	Labels map[string]string // may be nil
	// Held is the reason why it cannot go now, such as a sandbox that runs from it; empty if it can.
	Held string
	// Broken is set if it cannot be forked. It does not count among the newest of its series, so that it pushes no
	// whole snapshot out.
	Broken bool
}

// Due is a snapshot that a rule ends.
type Due struct {
	Tag  string
	Why  string // the rule, for people
	Held string // why it stays for now; empty if it can go
}

// series identifies snapshots for KeepLast: those of one name, or without a name those of one sandbox.
type series struct{ owner, name, source string }

// Plan returns the snapshots that are due, by tag.
func Plan(all []Snapshot, now time.Time) []Due {
	why := map[string]string{}
	groups := map[series][]Snapshot{}
	keep := map[series]int{}
	for _, s := range newestFirst(all) {
		r, err := Of(s.Labels, s.Made)
		if err != nil || r.Pinned {
			continue
		}
		if !r.Expires.IsZero() && !now.Before(r.Expires) {
			why[s.Tag] = "expired at " + r.Expires.UTC().Format(time.RFC3339)
		}
		key := series{s.Owner, r.Lineage, ""}
		if r.Lineage == "" {
			key.source = s.Source
		}
		if r.KeepLast == 0 || s.Broken || key.name+key.source == "" || why[s.Tag] != "" {
			continue
		}
		if keep[key] == 0 {
			keep[key] = r.KeepLast // of the newest
		}
		groups[key] = append(groups[key], s)
	}
	for key, list := range groups {
		for _, s := range list[min(len(list), keep[key]):] {
			why[s.Tag] = fmt.Sprintf("not among the last %d of %s", keep[key], cmp.Or(key.name, key.source))
		}
	}
	var out []Due
	for _, s := range all {
		if why[s.Tag] != "" {
			out = append(out, Due{s.Tag, why[s.Tag], s.Held})
		}
	}
	slices.SortFunc(out, func(a, b Due) int { return cmp.Compare(a.Tag, b.Tag) })
	return out
}

func newestFirst(all []Snapshot) []Snapshot {
	out := slices.Clone(all)
	slices.SortFunc(out, func(a, b Snapshot) int {
		return cmp.Or(b.Made.Compare(a.Made), cmp.Compare(b.Tag, a.Tag))
	})
	return out
}
