package tenancy

import (
	"context"
	"maps"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// retained adds the default rules to a branch of a sandbox. It returns an error if the caller is a tenant and the
// rules exceed its maximum.
func (v *lens) retained(req sandbox.BranchRequest, of sandbox.Info) (sandbox.BranchRequest, error) {
	if req.Internal || req.Transient {
		return req, nil
	}
	defaults := v.t.cfg.Retention.For(of.Owner)
	set := labels.Merge(labels.Inherited(of.Labels), req.Labels) // as the engine does
	add := defaults.Labels(set)
	if len(add) > 0 {
		req.Labels = labels.Merge(req.Labels, add)
		set = labels.Merge(set, add)
	}
	if v.p.Operator() {
		return req, nil
	}
	return req, refusedBound(defaults.Bound(set, v.t.cfg.Now()))
}

// boundChange returns an error if a change of a tenant would keep one of its snapshots beyond its maximum. Only
// snapshots of sandboxes have one.
func (v *lens) boundChange(ctx context.Context, tag string, change labels.Change) error {
	defaults := v.t.cfg.Retention.For(v.p.Tenant)
	if v.p.Operator() || defaults.MaxExpire == 0 {
		return nil
	}
	info, err := v.engine.Snapshots.SnapshotInfo(ctx, tag)
	if err != nil {
		return err
	}
	before := maps.Clone(info.Labels)
	after, err := change.Apply(info.Labels)
	same := func(key string) bool {
		was, had := before[key]
		is, has := after[key]
		return was == is && had == has
	}
	if err != nil || info.BranchedFrom == "" || same(retention.Expires) && same(retention.Pin) {
		return nil // the engine returns the error
	}
	return refusedBound(defaults.Bound(after, info.CreatedAt))
}

func refusedBound(err error) error {
	if err == nil {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrForbidden, sandbox.ReasonOperatorOnly, "%w: ask the operator", err)
}
