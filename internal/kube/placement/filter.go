package placement

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The reasons against a node, in the words of the error.
const (
	staleFacts   = "sent no recent facts"
	draining     = "draining or closed"
	otherPool    = "in another node pool"
	otherNode    = "not the node of the running sandbox"
	lacksFeature = "without a CPU feature of the snapshot"
	lacksMemory  = "short of memory"
	lacksDisk    = "short of disk space"
	asked        = "asked already"
	lacksParent  = "without the snapshot"
	hasParent    = "with the snapshot already"
)

// against returns the reason against a node, or an empty string.
func (b *Board) against(n *node, r Request, now time.Time) string {
	if why := b.againstSurely(n, r, now); why != "" {
		return why
	}
	if n.used()+n.marginal(r) > n.facts.Capacity {
		return lacksMemory
	}
	return ""
}

// againstSurely is against without doubtful promises: facts may include them already.
func (b *Board) againstSurely(n *node, r Request, now time.Time) string {
	switch {
	case r.Node != "" && n.facts.Name != r.Node:
		return otherNode
	case now.Sub(n.facts.Asked) >= b.cfg.Stale:
		return staleFacts
	case n.facts.Draining:
		return draining
	case r.Pool != "" && n.facts.Pool != r.Pool:
		return otherPool
	case r.Holders && !n.mayHave(r.Snapshot):
		return lacksParent
	case r.Others && n.has(r.Snapshot):
		return hasParent
	case !n.fits(n.marginal(r)):
		return lacksMemory
	case !(n.facts.DiskFree >= b.cfg.DiskFloor): // false for NaN, too
		return lacksDisk
	}
	for _, f := range r.CPUFeatures {
		if !n.features[f] {
			return lacksFeature
		}
	}
	return ""
}

// has reports whether the node lists the snapshot.
func (n *node) has(snapshot string) bool {
	_, listed := n.facts.Snapshots[snapshot]
	return listed
}

// mayHave reports whether the node may have data of the snapshot.
func (n *node) mayHave(snapshot string) bool {
	return n.has(snapshot) || n.facts.More
}

// fits reports room without doubtful promises.
func (n *node) fits(memory int64) bool {
	return n.used()-n.doubtful+memory <= n.facts.Capacity && (n.full == 0 || memory < n.full)
}

// NoNodeError reports a claim without a node to ask. Its text counts the nodes by the reason against them.
type NoNodeError struct {
	// Reasons is the number of nodes by reason.
	Reasons map[string]int
}

func (e *NoNodeError) Error() string {
	if len(e.Reasons) == 0 {
		return "no node can take the sandbox: no node is known"
	}
	var parts []string
	for reason, n := range e.Reasons {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	return "no node can take the sandbox: " + strings.Join(parts, ", ")
}
