package catalog

import (
	"fmt"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Health returns the damaged layers of a snapshot, and the time of the oldest last check of its
// layers. The time is zero if a layer was never checked.
func (c *Catalog) Health(m *snapshot.Manifest) (damaged []string, checked time.Time) {
	all := true
	for _, id := range m.LayerIDs() {
		found, ok := c.layers.Checked(id)
		if !ok {
			all = false
			continue
		}
		if found.Damage != "" {
			damaged = append(damaged, fmt.Sprintf("%s: %s", snapshot.LayerFile(id), found.Damage))
		}
		if checked.IsZero() || found.At.Before(checked) {
			checked = found.At
		}
	}
	if !all {
		checked = time.Time{}
	}
	return damaged, checked
}

// RefuseDamaged returns an error if a snapshot is damaged, to keep altered bytes out of children
// and derived snapshots.
func (c *Catalog) RefuseDamaged(m *snapshot.Manifest) error {
	damaged, _ := c.Health(m)
	if len(damaged) == 0 {
		return nil
	}
	return sandbox.Detailed(sandbox.Errorf(storeerr.ErrNotRestorable, sandbox.ReasonSnapshotDamaged,
		"snapshot %s is damaged: %s", m.Tag, strings.Join(damaged, "; ")), "tag", m.Tag)
}
