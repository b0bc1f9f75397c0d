package fakeengine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/receipt"
	"github.com/forkd/forkd/internal/sandbox"
)

// Rollback gives a sandbox a guest without memory of what was.
func (e *Engine) Rollback(_ context.Context, id, tag string) (sandbox.Info, error) {
	b, err := e.live(id)
	if err != nil {
		return sandbox.Info{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	line := e.lineLocked(b)
	if _, err := e.snapshotLocked(tag); err != nil {
		return sandbox.Info{}, fmt.Errorf("%w; these would do: %s", err, strings.Join(line, ", "))
	}
	if !slices.Contains(line, tag) {
		return sandbox.Info{}, fmt.Errorf("sandbox %s did not come from snapshot %s; these would do: %s: %w", id, tag, strings.Join(line, ", "), sandbox.ErrConflict)
	}
	r := forkReceipt(b.info, e.snapshots[tag])
	r.Op, r.Before = receipt.Rollback, b.info.SnapshotTag
	e.recordLocked(r)
	b.info.RolledBackTo, b.info.PID = tag, b.info.PID+1000
	b.guest.close()
	b.guest = newGuest(b.env)
	return b.info, nil
}

func (e *Engine) lineLocked(b *box) []string {
	var line []string
	for tag := b.info.SnapshotTag; tag != ""; tag = e.snapshots[tag].ParentTag {
		line = append(line, tag)
	}
	for tag, s := range e.snapshots {
		if s.BranchedFrom == b.info.ID {
			line = append(line, tag)
		}
	}
	slices.Sort(line)
	return line
}
