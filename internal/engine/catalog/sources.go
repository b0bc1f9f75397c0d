package catalog

import (
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Sources returns the IDs of the sandboxes that a sandbox descends from, nearest first: those that
// the snapshots above it were branched from. Some may have ended.
func (c *Catalog) Sources(of Origin) ([]string, error) {
	entries, err := c.snapshots.List()
	if err != nil {
		return nil, sandbox.StoreError(err)
	}
	var ids []string
	note := func(m *snapshot.Manifest) {
		if m == nil || m.Branch == nil || m.Branch.Sandbox == of.Sandbox || slices.Contains(ids, m.Branch.Sandbox) {
			return
		}
		ids = append(ids, m.Branch.Sandbox)
	}
	gone := func(hash string) *snapshot.Manifest {
		m := c.retiredManifest(hash)
		note(m)
		return m
	}
	newLineage(entries).climb(of.From, gone, func(en snapshot.Entry) { note(en.Manifest) })
	return ids, nil
}
