//go:build linux

package main

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
)

// e2bLives keeps the lives of E2B's sandboxes with the engine's lives.
type e2bLives struct{ engine *engine.Engine }

// Pause implements e2bapi.Lives. The deadline is suspended until the resume.
func (e e2bLives) Pause(ctx context.Context, id string, filesystemOnly bool) error {
	_, err := e.engine.Pause(ctx, id, sandbox.PauseOptions{FilesystemOnly: filesystemOnly, Suspend: true})
	return err
}

// Settle implements e2bapi.Lives.
func (e e2bLives) Settle(ctx context.Context, id string) error {
	_, err := e.engine.Settle(ctx, id)
	return err
}

// Resume implements e2bapi.Lives.
func (e e2bLives) Resume(ctx context.Context, id string) error {
	_, err := e.engine.Resume(ctx, id)
	return err
}

// Wake implements e2bapi.Lives.
func (e e2bLives) Wake(ctx context.Context, id string) error {
	runs, err := e.engine.Rouse(ctx, id)
	if err == nil && !runs {
		err = sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s does not run", id)
	}
	return err
}

// SetLife implements e2bapi.Lives. An end in the past means now.
func (e e2bLives) SetLife(ctx context.Context, id string, l e2bapi.Life) error {
	info, err := e.engine.Get(id)
	if err != nil {
		return err
	}
	if !l.End.IsZero() && !l.End.After(time.Now()) {
		switch {
		case l.Pause && info.Status == sandbox.StatusPaused && info.PID == 0:
			return nil
		case l.Pause:
			return e.Pause(ctx, id, l.FilesystemOnly)
		}
		return e.engine.Kill(ctx, id)
	}
	life := sandbox.Life{Deadline: l.End, Idle: info.Life.Idle, AtEnd: sandbox.AtEndKill, AutoResume: l.AutoResume,
		Suspended: info.Life.Suspended, RestartOnHang: info.Life.RestartOnHang}
	if l.Pause {
		life.AtEnd, life.FilesystemOnly = sandbox.AtEndPause, l.FilesystemOnly
	}
	_, err = e.engine.SetLife(ctx, id, life)
	return err
}

// Touch implements e2bapi.Lives.
func (e e2bLives) Touch(id string) { e.engine.Touch(id) }
