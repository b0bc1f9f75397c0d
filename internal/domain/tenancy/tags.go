package tenancy

import (
	"errors"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Tags share one namespace, but a tenant's tags begin with its name and a dash. So a tenant cannot take another
// tenant's tag, or learn of it from a conflict. A tenant may omit the prefix; answers contain the whole tag.
func (v *lens) prefix() string { return v.p.Tenant + "-" }

// newTag returns the whole tag for a tenant's new snapshot.
func (v *lens) newTag(tag string) (string, error) {
	if err := snapshot.CheckTag(tag); err != nil {
		return "", sandbox.StoreError(err)
	}
	if v.p.Operator() || strings.HasPrefix(tag, v.prefix()) {
		return tag, nil
	}
	whole := v.prefix() + tag
	if snapshot.CheckTag(whole) != nil {
		return "", sandbox.Errorf(sandbox.ErrInvalid, "", "tag %q: with the tenant's name before it it is too long", tag)
	}
	return whole, nil
}

// find returns the snapshot with this tag: the tenant's own, or a public one.
func (v *lens) find(tag string) (sandbox.SnapshotBrief, error) {
	if v.p.Operator() {
		return v.engine.Snapshots.SnapshotBrief(tag)
	}
	if err := snapshot.CheckTag(tag); err != nil {
		return sandbox.SnapshotBrief{}, sandbox.StoreError(err)
	}
	if whole, err := v.newTag(tag); err == nil && whole != tag {
		if b, err := v.engine.Snapshots.SnapshotBrief(whole); err == nil && b.Owner == v.p.Tenant {
			return b, nil
		}
	}
	b, err := v.engine.Snapshots.SnapshotBrief(tag)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return b, noSnapshot(tag)
	case err != nil:
		return b, err
	case b.Owner != v.p.Tenant && !v.t.cfg.Published.Has(b.Tag, b.ContentHash):
		return sandbox.SnapshotBrief{}, noSnapshot(tag)
	}
	return b, nil
}

// findOwn is find for operations that change the snapshot or cost as much. It rejects other owners' snapshots.
func (v *lens) findOwn(tag string) (sandbox.SnapshotBrief, error) {
	b, err := v.find(tag)
	if err == nil && !v.p.Sees(b.Owner) {
		err = sandbox.Errorf(sandbox.ErrForbidden, sandbox.ReasonOperatorOnly,
			"snapshot %s is public: it can be forked from, and is another's", b.Tag)
	}
	return b, err
}
