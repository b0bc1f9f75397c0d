package catalog

import (
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Origin is where a sandbox comes from.
type Origin struct {
	Sandbox string
	// From are the snapshots that it was forked from and rolled back to.
	From []snapshot.Parent
}

// ancestry is the snapshots that a sandbox may be rolled back to, by tag, sorted: those that it
// came from, and those branched from itself. A tag that was given to another snapshot
// since is not in it.
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

// CheckRollback refuses a tag that a sandbox did not come from, and names those that would do.
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
		left, reason = "these would do: "+some, sandbox.ReasonNotInAncestry
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
		"sandbox %s did not come from snapshot %s, and that was not branched from it; %s", of.Sandbox, tag, left),
		"tags", some)
}

// atMost lists names for people, and of many the first n.
func atMost(n int, names []string) string {
	if len(names) > n {
		names = append(slices.Clone(names[:n]), "and more")
	}
	return strings.Join(names, ", ")
}
