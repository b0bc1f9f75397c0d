package tenancy

import (
	"context"
	"errors"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// moved reports whether an error is about the tenant's own sandbox, which another daemon has taken.
func (v *lens) moved(err error) bool {
	var told *sandbox.Error
	return errors.As(err, &told) && told.Reason() == sandbox.ReasonSandboxMoved && told.Details()["tenant"] == v.p.Tenant
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
