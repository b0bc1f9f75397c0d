package tenancy

import (
	"errors"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Tags are names in one list, but a tenant's begin with its own name and a dash: so one
// tenant cannot take, or find out by a conflict, what another has. A tenant may leave the
// beginning out; answers have the whole tag.
func (v *lens) prefix() string { return v.p.Tenant + "-" }

// newTag is the whole tag of a snapshot that a tenant makes.
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

// find finds the snapshot that a tag stands for: the tenant's own, or one that is public.
func (v *lens) find(tag string) (sandbox.SnapshotBrief, error) {
	if v.p.Operator() {
		return v.engine.SnapshotBrief(tag)
	}
	if err := snapshot.CheckTag(tag); err != nil {
		return sandbox.SnapshotBrief{}, sandbox.StoreError(err)
	}
	if whole, err := v.newTag(tag); err == nil && whole != tag {
		if b, err := v.engine.SnapshotBrief(whole); err == nil && b.Owner == v.p.Tenant {
			return b, nil
		}
	}
	b, err := v.engine.SnapshotBrief(tag)
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

// findOwn is find for what changes the snapshot, or costs the host as much as that.
func (v *lens) findOwn(tag string) (sandbox.SnapshotBrief, error) {
	b, err := v.find(tag)
	if err == nil && !v.p.Sees(b.Owner) {
		err = sandbox.Errorf(sandbox.ErrForbidden, sandbox.ReasonOperatorOnly,
			"snapshot %s is public: it can be forked from, and is another's", b.Tag)
	}
	return b, err
}
