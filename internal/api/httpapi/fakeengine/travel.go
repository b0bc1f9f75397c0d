package fakeengine

import (
	"context"
	"io"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// ExportSnapshot writes the tag.
func (e *Engine) ExportSnapshot(_ context.Context, req sandbox.ExportRequest, w io.Writer) error {
	e.mu.Lock()
	_, err := e.snapshotLocked(req.Tag)
	e.mu.Unlock()
	if err == nil {
		_, err = io.WriteString(w, req.Tag)
	}
	return err
}

// ImportSnapshot refuses all streams except the one of ExportSnapshot.
func (e *Engine) ImportSnapshot(_ context.Context, req sandbox.ImportRequest, r io.Reader) (sandbox.SnapshotInfo, error) {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	e.mu.Lock()
	info, err := e.snapshotLocked(string(b))
	e.mu.Unlock()
	if err != nil {
		return sandbox.SnapshotInfo{}, sandbox.Errorf(sandbox.ErrInvalid, "", "the stream is no snapshot")
	}
	if req.Check {
		return info, nil
	}
	if err := free(e, req.Tag); err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	info.Tag, info.Owner, info.ParentTag, info.Ancestors, info.Dependents, info.Sandboxes = req.Tag, req.Owner, "", nil, nil, nil
	e.snapshots[req.Tag] = info
	return e.relateLocked(info), nil
}
