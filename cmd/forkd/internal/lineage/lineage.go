// Package lineage arranges snapshots and sandboxes by descent, for `forkd snapshot tree`. It only
// builds the tree: it calls no daemon and does not print. The trap: a parent may have been deleted
// by force while other snapshots are built on it, so a node may stand for a deleted snapshot.
package lineage

import (
	"cmp"
	"slices"

	"github.com/forkd/forkd/api"
)

// Node is a snapshot with its descendants. docs/inside/formats/json-output.md describes its JSON.
type Node struct {
	Tag string `json:"tag"` // kept after the snapshot is deleted
	// Snapshot is nil if it was deleted while others need it.
	Snapshot  *api.SnapshotInfo `json:"snapshot"`
	Sandboxes []api.SandboxInfo `json:"sandboxes"` // forked from the snapshot
	Children  []*Node           `json:"children"`  // branched from these sandboxes
}

// Build returns the roots, sorted by tag. Every snapshot and every sandbox is in the result exactly
// once.
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

// circular reports whether a snapshot descends from itself, which requires a forged manifest. Such
// snapshots become roots. Otherwise they would not be shown.
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
	// IDs are random. Sandboxes of one second stay in the daemon's order, oldest first.
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

// Line is a row of the drawing. Branch has the lines leading to it. One of Node, Sandbox and More
// is set.
type Line struct {
	Branch  string           // characters of the tree in front of the row; empty for a root
	Node    *Node            // row of a snapshot
	Sandbox *api.SandboxInfo // row of a sandbox
	More    int              // number of sandboxes that are not drawn
}

// Draw returns the rows of the trees. For each snapshot it draws at most the given number of
// sandboxes, and all sources of snapshots in the tree.
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

// note collects the source sandboxes of snapshots.
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
