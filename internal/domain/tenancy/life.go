package tenancy

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Pause pauses a sandbox. It counts as one of its tenant's all the same, so that there is room for it
// when it is resumed.
func (v sandboxView) Pause(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error) {
	if err := v.mine(id); err != nil {
		return sandbox.Info{}, err
	}
	return v.engine.Pause(ctx, id, opt)
}

// Resume lets a paused sandbox go on.
func (v sandboxView) Resume(ctx context.Context, id string) (sandbox.Info, error) {
	if err := v.mine(id); err != nil {
		return sandbox.Info{}, err
	}
	return v.engine.Resume(ctx, id)
}

// SetLife changes for how long a sandbox may run.
func (v sandboxView) SetLife(ctx context.Context, id string, l sandbox.Life) (sandbox.Info, error) {
	if err := v.mine(id); err != nil {
		return sandbox.Info{}, err
	}
	return v.engine.SetLife(ctx, id, l)
}
