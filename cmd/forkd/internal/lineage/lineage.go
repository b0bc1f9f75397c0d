// Package lineage arranges snapshots and sandboxes by descent, for
// `forkd snapshot tree`. It owns the shape only: it asks no daemon and prints
// nothing. The trap: a parent may have been deleted by force while others are
// built on it, so a node may stand for a snapshot that is no more.
package lineage

import (
	"cmp"
	"slices"

	"github.com/forkd/forkd/api"
)

// Node is a snapshot and what came of it. Its JSON is in
// docs/inside/formats/json-output.md.
type Node struct {
	Tag string `json:"tag"`
	// Snapshot is nil for one that was deleted while others need it.
	Snapshot  *api.SnapshotInfo `json:"snapshot"`
	Sandboxes []api.SandboxInfo `json:"sandboxes"` // that were forked from it
	Children  []*Node           `json:"children"`  // that were branched from those
}

// Build returns the roots, by tag. Every snapshot and every sandbox is in the
// result exactly once.
func Build(snapshots []api.SnapshotInfo, sandboxes []api.SandboxInfo) []*Node {
	nodes := map[string]*Node{}
	node := func(tag string) *Node {
		if nodes[tag] == nil {
			nodes[tag] = &Node{Tag: tag, Sandboxes: []api.SandboxInfo{}, Children: []*Node{}}
		}
		return nodes[tag]
	}
	for _, s := range snapshots {
		node(s.Tag).Snapshot = &s
	}
	for _, sb := range sandboxes {
		n := node(sb.SnapshotTag)
		n.Sandboxes = append(n.Sandboxes, sb)
	}
	roots := []*Node{}
	for _, s := range snapshots {
		if s.ParentTag == nil || circular(nodes, s.Tag) {
			roots = append(roots, nodes[s.Tag])
			continue
		}
		parent := node(*s.ParentTag)
		parent.Children = append(parent.Children, nodes[s.Tag])
	}
	for _, n := range nodes {
		if n.Snapshot == nil {
			roots = append(roots, n)
		}
		arrange(n)
	}
	byTag(roots)
	return roots
}

// circular reports that a snapshot descends from itself, which only a forged
// manifest can say. Such are roots, or nobody would see them.
func circular(nodes map[string]*Node, tag string) bool {
	seen := map[string]bool{}
	for at := tag; !seen[at]; {
		seen[at] = true
		n := nodes[at]
		if n == nil || n.Snapshot == nil || n.Snapshot.ParentTag == nil {
			return false
		}
		if at = *n.Snapshot.ParentTag; at == tag {
			return true
		}
	}
	return false
}

func arrange(n *Node) {
	byTag(n.Children)
	// Ids are random: those of one second stay as the daemon lists them, oldest first.
	slices.SortStableFunc(n.Sandboxes, func(a, b api.SandboxInfo) int {
		return cmp.Compare(a.CreatedAtUnix, b.CreatedAtUnix)
	})
}

func byTag(nodes []*Node) {
	slices.SortFunc(nodes, func(a, b *Node) int { return cmp.Compare(a.Tag, b.Tag) })
}

// Find returns the node of a tag, or nil.
func Find(roots []*Node, tag string) *Node {
	for _, n := range roots {
		if n.Tag == tag {
			return n
		}
		if found := Find(n.Children, tag); found != nil {
			return found
		}
	}
	return nil
}

// Line is a row of the drawing: Branch are the lines that lead to it, and of
// Node, Sandbox and More one is set.
type Line struct {
	Branch  string
	Node    *Node
	Sandbox *api.SandboxInfo
	More    int // sandboxes that are not drawn
}

// Draw returns the rows of the trees. Of each snapshot at most so many sandboxes are
// drawn, and those that snapshots in the tree were branched from.
func Draw(roots []*Node, most int) []Line {
	sources := map[string]bool{}
	note(roots, sources)
	var lines []Line
	for _, n := range roots {
		lines = append(lines, Line{Node: n})
		lines = below(lines, n, "", most, sources)
	}
	return lines
}

// note collects the sandboxes that snapshots were branched from.
func note(nodes []*Node, sources map[string]bool) {
	for _, n := range nodes {
		if n.Snapshot != nil && n.Snapshot.BranchedFrom != nil {
			sources[*n.Snapshot.BranchedFrom] = true
		}
		note(n.Children, sources)
	}
}

func below(lines []Line, n *Node, lead string, most int, sources map[string]bool) []Line {
	var rows []Line
	hidden := 0
	for i := range n.Sandboxes {
		if sb := &n.Sandboxes[i]; len(n.Sandboxes) <= most || i < most || sources[sb.ID] {
			rows = append(rows, Line{Sandbox: sb})
		} else {
			hidden++
		}
	}
	if hidden > 0 {
		rows = append(rows, Line{More: hidden})
	}
	for _, c := range n.Children {
		rows = append(rows, Line{Node: c})
	}
	for i, row := range rows {
		tee, pipe := "├── ", "│   "
		if i == len(rows)-1 {
			tee, pipe = "└── ", "    "
		}
		row.Branch = lead + tee
		lines = append(lines, row)
		if row.Node != nil {
			lines = below(lines, row.Node, lead+pipe, most, sources)
		}
	}
	return lines
}
