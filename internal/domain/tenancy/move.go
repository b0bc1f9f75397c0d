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
	if !v.p.Operator() {
		req.Owner = &v.p.Tenant
	}
	return v.engine.Handover(ctx, id, req)
}

// Take takes a sandbox of the tenant from another daemon, within the quotas. It counts here from then on.
func (v sandboxView) Take(ctx context.Context, req sandbox.TakeRequest) (sandbox.Info, error) {
	if v.p.Operator() {
		return v.engine.Take(ctx, req)
	}
	req.Owner = &v.p.Tenant
	release := func() {}
	defer func() { release() }()
	req.Admit = func(memoryMiB int) (err error) {
		if err := v.roomOnDisk(ctx); err != nil {
			return err
		}
		r, err := v.admit(1, memoryMiB)
		if err == nil {
			release = r
		}
		return err
	}
	defer v.diskChanged()
	return v.engine.Take(ctx, req)
}
