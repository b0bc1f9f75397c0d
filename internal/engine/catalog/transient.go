package catalog

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Transient returns the number of transient snapshots, whose tags no client chose. It also returns
// the tags of the ones without children, sandboxes and forks. Delete notices if one is used again
// meanwhile.
func (c *Catalog) Transient() (total int, unneeded []string, err error) {
	entries, err := c.snapshots.List()
	if err != nil {
		return 0, nil, sandbox.StoreError(err)
	}
	tree := newLineage(entries)
	for _, en := range entries {
		if en.Manifest == nil || en.Manifest.Branch == nil || !en.Manifest.Branch.Transient {
			continue
		}
		total++
		if len(tree.children[en.Tag]) == 0 && c.unused(en) {
			unneeded = append(unneeded, en.Tag)
		}
	}
	return total, unneeded, nil
}

func (c *Catalog) unused(en snapshot.Entry) bool {
	e := c.tags.get(en.Tag)
	return e.state != writing && c.usersOf(en, e) == ""
}
