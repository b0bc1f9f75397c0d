package catalog

import (
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Origin describes where a sandbox comes from.
type Origin struct {
	// Sandbox is its ID. Snapshots branched from it are also part of its ancestry.
	Sandbox string
	// From lists the snapshots it was forked from and rolled back to.
	From []snapshot.Parent
}

// ancestry returns the tags a sandbox may be rolled back to, sorted: the snapshots it came from,
// and the ones branched from the sandbox itself. It omits tags reused for another snapshot since.
func (c *Catalog) ancestry(of Origin, entries []snapshot.Entry) []string {
	var tags []string
	newLineage(entries).climb(of.From, c.retiredManifest, func(en snapshot.Entry) {
		if en.Err == nil {
			tags = append(tags, en.Tag)
		}
	})
	for _, en := range entries {
		if en.Err == nil && en.Manifest.Branch != nil && en.Manifest.Branch.Sandbox == of.Sandbox {
			tags = append(tags, en.Tag)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// CheckRollback refuses a tag outside a sandbox's ancestry, and lists the valid tags in the error.
func (c *Catalog) CheckRollback(of Origin, tag string) error {
	entries, err := c.snapshots.List()
	if err != nil {
		return sandbox.StoreError(err)
	}
	tags := c.ancestry(of, entries)
	if slices.Contains(tags, tag) {
		return nil
	}
	left, reason := "no snapshot of its ancestry is left", sandbox.ReasonAncestryGone
	some := atMost(20, tags)
	if len(tags) > 0 {
		left, reason = "valid snapshots: "+some, sandbox.ReasonNotInAncestry
	}
	i := slices.IndexFunc(entries, func(en snapshot.Entry) bool { return en.Tag == tag })
	switch {
	case i < 0:
		return sandbox.Detailed(sandbox.Errorf(sandbox.ErrNotFound, reason, "snapshot %s not found; %s", tag, left),
			"tags", some)
	case entries[i].Err != nil:
		return sandbox.StoreError(entries[i].Err)
	}
	return sandbox.Detailed(sandbox.Errorf(sandbox.ErrConflict, reason,
		"sandbox %s does not descend from snapshot %s, and the snapshot was not branched from it; %s", of.Sandbox, tag, left),
		"tags", some)
}

// atMost joins names for display, limited to the first n.
func atMost(n int, names []string) string {
	if len(names) > n {
		names = append(slices.Clone(names[:n]), "and more")
	}
	return strings.Join(names, ", ")
}
