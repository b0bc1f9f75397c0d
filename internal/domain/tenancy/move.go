package tenancy

import (
	"context"
	"errors"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// moving reports whether an error is about a sandbox on its way to another daemon or from one, and whether the sandbox
// is the tenant's own.
func (v *lens) moving(err error) (own, is bool) {
	var told *sandbox.Error
	if !errors.As(err, &told) {
		return false, false
	}
	is = told.Reason() == sandbox.ReasonSandboxMoved || told.Reason() == sandbox.ReasonSandboxUnsettled
	return is && told.Details()["tenant"] == v.p.Tenant, is
}

// Handover describes a paused sandbox for another daemon, or gives it up.
func (v sandboxView) Handover(ctx context.Context, id string, req sandbox.HandoverRequest) (sandbox.Handover, error) {
	if !v.lens.p.Operator() {
		req.Owner = &v.lens.p.Tenant
	}
	return v.lens.engine.Sandboxes.Handover(ctx, id, req)
}

// Take takes a sandbox of the tenant from another daemon, within the quotas. It counts here from then on.
func (v sandboxView) Take(ctx context.Context, req sandbox.TakeRequest) (sandbox.Info, error) {
	if v.lens.p.Operator() {
		return v.lens.engine.Sandboxes.Take(ctx, req)
	}
	req.Owner = &v.lens.p.Tenant
	release := func() {}
	defer func() { release() }()
	req.Admit = func(memoryMiB int) (err error) {
		if err := v.lens.roomOnDisk(ctx); err != nil {
			return err
		}
		r, err := v.lens.admit(1, memoryMiB)
		if err == nil {
			release = r
		}
		return err
	}
	defer v.lens.diskChanged()
	return v.lens.engine.Sandboxes.Take(ctx, req)
}
