package tenancy

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Pause pauses a sandbox. The sandbox still counts against its tenant's quotas, so that it can be resumed.
func (v sandboxView) Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error) {
	if err := v.lens.mine(id); err != nil {
		return sandbox.Info{}, err
	}
	return v.lens.engine.Sandboxes.Pause(ctx, id, opt)
}

// Resume resumes a paused sandbox.
func (v sandboxView) Resume(ctx context.Context, id string) (sandbox.Info, error) {
	if err := v.lens.mine(id); err != nil {
		return sandbox.Info{}, err
	}
	return v.lens.engine.Sandboxes.Resume(ctx, id)
}

// SetLife changes a sandbox's lifetime.
func (v sandboxView) SetLife(ctx context.Context, id string, l sandbox.Life) (sandbox.Info, error) {
	if err := v.lens.mine(id); err != nil {
		return sandbox.Info{}, err
	}
	return v.lens.engine.Sandboxes.SetLife(ctx, id, l)
}
