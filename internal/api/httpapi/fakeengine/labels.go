package fakeengine

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// labelled has the engine's methods about labels.
type labelled struct{ e *Engine }

// LabelSandbox changes a sandbox's labels.
func (l labelled) LabelSandbox(_ context.Context, id string, change labels.Change) (sandbox.Info, error) {
	b, err := l.e.entry(id)
	if err == nil && b.info.Status == sandbox.StatusFailed {
		b, err = l.e.live(id)
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	after, err := sandbox.ChangeLabels(b.info.Labels, change)
	if err == nil {
		b.info.Labels = after
	}
	return b.info, err
}

// LabelSnapshot changes a snapshot's labels.
func (l labelled) LabelSnapshot(_ context.Context, tag string, change labels.Change) (sandbox.SnapshotInfo, error) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	info, err := l.e.snapshotLocked(tag)
	if err == nil && info.Status == sandbox.SnapshotWriting {
		err = sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSnapshotNotReady, "snapshot %s is being written", tag)
	}
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	stored := l.e.snapshots[tag]
	if stored.Labels, err = sandbox.ChangeLabels(stored.Labels, change); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	l.e.snapshots[tag], info.Labels = stored, stored.Labels
	return info, nil
}

// PruneSnapshots removes due snapshots.
func (l labelled) PruneSnapshots(ctx context.Context, req sandbox.PruneRequest) (sandbox.PruneReport, error) {
	report := sandbox.PruneReport{DryRun: req.DryRun}
	list, err := l.e.ListSnapshots(ctx)
	if err != nil {
		return report, err
	}
	facts, byTag := []retention.Snapshot{}, map[string]sandbox.SnapshotInfo{}
	for _, s := range list {
		facts, byTag[s.Tag] = append(facts, s.Retained()), s
	}
	for _, d := range retention.Plan(facts, time.Now()) {
		s := byTag[d.Tag]
		if req.Sees != nil && !req.Sees(s.Owner) {
			continue
		}
		due := sandbox.DueSnapshot{Tag: d.Tag, Owner: s.Owner, Why: d.Why, Held: d.Held}
		if d.Held == "" {
			due.Bytes = s.MemoryOwnBytes + s.DiskOwnBytes + s.VMStateBytes
			report.Bytes += due.Bytes
		}
		if d.Held == "" && !req.DryRun {
			if err := l.e.DeleteSnapshot(ctx, d.Tag, sandbox.DeleteOptions{Force: true}); err != nil {
				return report, err
			}
		}
		report.Snapshots = append(report.Snapshots, due)
	}
	return report, nil
}
