package fakeengine

import (
	"bufio"
	"context"
	"io"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// travels sends and receives snapshots.
type travels struct{ e *Engine }

// ExportSnapshot writes the tag.
func (t travels) ExportSnapshot(_ context.Context, req sandbox.ExportRequest, w io.Writer) error {
	e := t.e
	e.mu.Lock()
	info, err := e.snapshotLocked(req.Tag)
	e.mu.Unlock()
	if err == nil {
		err = sandbox.RefuseTainted(e.Secrets, req.Tag, secretsOf(info))
	}
	if err == nil {
		_, err = io.WriteString(w, req.Tag)
	}
	return err
}

// ImportSnapshot refuses all streams except those of ExportSnapshot and OpenBlobs.
func (t travels) ImportSnapshot(_ context.Context, req sandbox.ImportRequest,
	r io.Reader) (sandbox.SnapshotInfo, error) {
	e := t.e
	in := bufio.NewReader(r)
	if head, _ := in.Peek(16); isTar(head) {
		return importBlobs(e, req, in)
	}
	b, err := io.ReadAll(io.LimitReader(in, 1<<20))
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
	info.Tag, info.Owner, info.ParentTag, info.Secrets = req.Tag, req.Owner, "", nil
	info.Ancestors, info.Dependents, info.Sandboxes = nil, nil, nil
	e.snapshots[req.Tag] = info
	return e.relateLocked(info), nil
}
