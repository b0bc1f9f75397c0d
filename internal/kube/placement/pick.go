package placement

import (
	"cmp"
	"time"
)

// probes is the number of random looks per wanted node before the board looks at all nodes.
const probes = 4

// pickLocked returns the node to ask next, or nil. It prefers nodes without a recent refusal. The last resort are nodes
// with room unless doubtful promises count twice.
func (b *Board) pickLocked(r Request, tried []*node, now time.Time) *node {
	fit := func(n *node) bool { return !has(tried, n) && b.against(n, r, now) == "" }
	calm := func(n *node) bool { return !now.Before(n.shunned) && fit(n) }
	found := b.sampleLocked(calm)
	if len(found) == 0 {
		found = b.sampleLocked(fit)
	}
	if len(found) == 0 {
		found = b.sampleLocked(func(n *node) bool { return !has(tried, n) && b.againstSurely(n, r, now) == "" })
	}
	return b.best(found, r)
}

func has(list []*node, n *node) bool {
	for _, l := range list {
		if l == n {
			return true
		}
	}
	return false
}

// sampleLocked returns up to cfg.Sample random nodes. Random looks suffice while most nodes fit; otherwise a uniform
// sample of all fitting nodes follows, so a claim finds the last node with room.
func (b *Board) sampleLocked(fit func(*node) bool) []*node {
	if len(b.nodes) == 0 {
		return nil
	}
	found := make([]*node, 0, b.cfg.Sample)
	for range probes * b.cfg.Sample {
		n := b.nodes[b.cfg.Random.IntN(len(b.nodes))]
		if has(found, n) || !fit(n) {
			continue
		}
		if found = append(found, n); len(found) == b.cfg.Sample {
			return found
		}
	}
	return b.reservoirLocked(fit)
}

// reservoirLocked looks at all nodes.
func (b *Board) reservoirLocked(fit func(*node) bool) []*node {
	found, seen := make([]*node, 0, b.cfg.Sample), 0
	for _, n := range b.nodes {
		if !fit(n) {
			continue
		}
		seen++
		if len(found) < b.cfg.Sample {
			found = append(found, n)
		} else if i := b.cfg.Random.IntN(seen); i < b.cfg.Sample {
			found[i] = n
		}
	}
	return found
}

// best returns the first node of a sample in the order: prepared shells, all layers, most bytes of layers, least
// used. Nodes with clearly more load than the least used one of the sample are not considered: otherwise the few
// nodes with a popular snapshot would get all of its sandboxes.
func (b *Board) best(sample []*node, r Request) *node {
	if len(sample) == 0 {
		return nil
	}
	least := sample[0].load(0)
	for _, n := range sample[1:] {
		least = min(least, n.load(0))
	}
	var best *node
	for _, n := range sample {
		if n.load(-n.marginal(r)) > least*(1+b.cfg.Slack) {
			continue
		}
		if best == nil || n.compare(best, r) < 0 {
			best = n
		}
	}
	return best
}

// load returns the used part of the node's memory, with this much added.
func (n *node) load(more int64) float64 {
	return float64(n.used()+more) / float64(max(n.facts.Capacity, 1))
}

// compare returns a negative number if n comes before m.
func (n *node) compare(m *node, r Request) int {
	return cmp.Or(
		-cmp.Compare(n.prepared(r), m.prepared(r)),
		-cmp.Compare(n.present(r), m.present(r)),
		cmp.Compare(n.load(0), m.load(0)))
}

// prepared returns 1 if the node has prepared shells for the whole request.
func (n *node) prepared(r Request) int {
	if int64(n.facts.Snapshots[r.Snapshot].Prepared)-n.taken[r.Snapshot] >= r.count() {
		return 1
	}
	return 0
}

// present returns the part of the snapshot's layers on the node, from 0 to 1.
func (n *node) present(r Request) float64 {
	p := n.facts.Snapshots[r.Snapshot]
	if p.Bytes <= 0 {
		return 0
	}
	return min(max(float64(p.BytesPresent)/float64(p.Bytes), 0), 1)
}

// pause returns the time without questions after this many refusals in a row.
func pause(first time.Duration, failures int) time.Duration {
	const most = 30 * time.Second
	return min(first<<min(max(failures-1, 0), 20), most)
}
