package op

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/leaf/labels"
)

// Labels changes the labels of sandboxes and snapshots, applies the rules in them, and changes the tags of snapshots.
type Labels struct{ ops *Ops }

// NewLabels returns Labels.
func NewLabels(o *Ops) *Labels { return &Labels{o} }

// LabelSandbox changes a sandbox's labels, also if it is paused. The change is on disk when it returns.
func (l *Labels) LabelSandbox(ctx context.Context, id string, change labels.Change) (sandbox.Info, error) {
	_, done, err := l.ops.begin(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer done()
	s, info, err := l.ops.sandboxes.Find(id)
	if err == nil && info.Status == sandbox.StatusFailed {
		_, _, err = l.ops.sandboxes.Running(id) // returns how it ended
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	info, err = sandboxes.SetLabels(s, func(set map[string]string) (map[string]string, error) {
		return sandbox.ChangeLabels(set, change)
	})
	return info, sandbox.StoreError(err)
}

// LabelSnapshot changes a snapshot's labels. The change is on disk when it returns.
func (l *Labels) LabelSnapshot(ctx context.Context, tag string, change labels.Change) (sandbox.SnapshotInfo, error) {
	_, done, err := l.ops.begin(ctx)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer done()
	return l.ops.catalog.SetLabels(tag, change)
}

// PruneSnapshots removes the snapshots that are due by the rules of their labels.
func (l *Labels) PruneSnapshots(ctx context.Context, req sandbox.PruneRequest) (sandbox.PruneReport, error) {
	ctx, done, err := l.ops.begin(ctx)
	if err != nil {
		return sandbox.PruneReport{}, err
	}
	defer done()
	return catalog.NewRetention(l.ops.catalog).Prune(ctx, req)
}
