package fakeengine

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
)

// DiffSnapshots returns no differences between a snapshot and itself, and otherwise always the same
// differences.
func (e *Engine) DiffSnapshots(_ context.Context, req sandbox.DiffRequest) (sandbox.SnapshotDiff, error) {
	before, after, limit := req.Before, req.After, req.Limit
	if limit < 0 {
		return sandbox.SnapshotDiff{}, fmt.Errorf("limit is %d: %w", limit, sandbox.ErrInvalid)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	d := sandbox.SnapshotDiff{Before: before, After: after, Took: 1200 * time.Millisecond}
	d.Files.Complete, d.Processes.Complete, d.Packages.Complete = true, true, true
	for _, tag := range []string{before, after} {
		if _, err := e.snapshotLocked(tag); err != nil {
			return sandbox.SnapshotDiff{}, fmt.Errorf("compare %s with %s: %w", before, after, err)
		}
	}
	if before == after {
		return d, nil
	}
	old, grown := guestdelta.File{Path: "/etc/motd", Mode: 0o644, Size: 10},
		guestdelta.File{Path: "/etc/motd", Mode: 0o600, Size: 2048}
	d.Files.Counts, d.Files.Compared = guestdelta.Counts{Added: 2, Removed: 1, Changed: 1}, 12000
	d.Files.Added = []guestdelta.File{{Path: "/usr/bin/jq", Mode: 0o755, Size: 31 << 10},
		{Path: "/usr/bin/jq\x1b[2J", Mode: 0o644}}
	if limit > 0 {
		d.Files.Added = d.Files.Added[:min(limit, 2)]
	}
	d.Files.Removed = []guestdelta.File{{Path: "/tmp/x", Mode: 0o644, Size: 3}}
	d.Files.Changed = []guestdelta.FileChange{{Before: old, After: grown, What: []string{"size", "mode"}}}
	p := guestdelta.Process{PID: 77, PPID: 1, Name: "python3", Args: []string{"python3", "-"},
		Memory: guestdelta.Memory{RSS: 30 << 10, PSS: 25 << 10, Anon: 20 << 10}}
	d.Processes.Counts, d.Processes.Changed = guestdelta.Counts{Changed: 1},
		[]guestdelta.ProcessChange{{Process: p, Before: guestdelta.Memory{RSS: 20 << 10, PSS: 15 << 10, Anon: 10 << 10}}}
	jq := guestdelta.Package{Name: "jq", Architecture: "amd64", Version: "1.6-2"}
	libc := guestdelta.Package{Name: "libc6", Architecture: "amd64", Version: "2.36-10"}
	d.Packages.Counts = guestdelta.Counts{Added: 1, Changed: 1}
	d.Packages.Added, d.Packages.Changed = []guestdelta.Package{jq},
		[]guestdelta.PackageChange{{Package: libc, Before: "2.36-9"}}
	return d, nil
}
