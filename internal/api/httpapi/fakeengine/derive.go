package fakeengine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// DeriveSnapshot makes a snapshot on top of another. Its program prints its own arguments. A
// program named "false" fails.
func (e *Engine) DeriveSnapshot(_ context.Context, req sandbox.DeriveRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	if e.Drain.On() {
		return sandbox.SnapshotInfo{}, drain.Refusal()
	}
	if progress == nil {
		progress = func(sandbox.Step) {}
	}
	busy := free(e, req.Tag)
	e.mu.Lock()
	defer e.mu.Unlock()
	wrong := func(format string, args ...any) (sandbox.SnapshotInfo, error) {
		return sandbox.SnapshotInfo{},
			fmt.Errorf("create snapshot %s from %s: %w", req.Tag, req.From, fmt.Errorf(format, args...))
	}
	from, err := e.snapshotLocked(req.From)
	switch {
	case len(req.Exec) == 0 && req.Warm == "":
		return wrong("nothing to do: %w", sandbox.ErrInvalid)
	case sandbox.CheckLabels(req.Labels) != nil:
		return wrong("%w", sandbox.CheckLabels(req.Labels))
	case busy != nil:
		return wrong("%w", busy)
	case err != nil:
		return wrong("%w", err)
	}
	for i, name := range []string{"fork", "exec", "quiesce", "capture"} {
		progress(sandbox.Step{Name: name})
		if name == "exec" {
			progress(sandbox.Step{Name: name, Output: fmt.Appendln(nil, req.Exec)})
			if slices.Contains(req.Exec, "false") {
				return wrong("exec: exit status 1; it printed nothing: %w", sandbox.ErrInvalid)
			}
		}
		progress(sandbox.Step{Name: name, Done: true, Took: time.Duration(i+1) * 10 * time.Millisecond})
	}
	e.snapshots[req.Tag] = e.branchedLocked(
		&entry{info: sandbox.Info{Secrets: from.Secrets, SnapshotTag: req.From, SnapshotHash: from.ContentHash,
			Shape: from.Shape, Volumes: from.Volumes}},
		sandbox.BranchRequest{SandboxID: "sb-derived-0001", Owner: req.Owner, Mode: sandbox.BranchDiff,
			Network: cmp.Or(req.Network, from.Network), Labels: req.Labels},
		sandbox.BranchResult{Tag: req.Tag, Bytes: diffBytes, Pause: diffPause})
	return e.snapshotLocked(req.Tag)
}
