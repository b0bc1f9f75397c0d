package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/forkd/forkd/internal/kvm"
	"github.com/forkd/forkd/internal/sandbox"
)

// Snapshots finds what is measured against.
type Snapshots interface {
	SnapshotInfo(ctx context.Context, tag string) (sandbox.SnapshotInfo, error)
}

// Lab measures on the daemon's host, where the VMs run.
type Lab struct {
	OpenKVM   func() (*os.File, error)
	Snapshots Snapshots
	StoreDir  string // where snapshots and the sandboxes' disks lie
}

// Floor is Floor for N VMs of a snapshot's size over its memory.
func (l Lab) Floor(ctx context.Context, tag string, n int) (time.Duration, error) {
	if n < 1 || n > sandbox.MaxFork {
		return 0, fmt.Errorf("%w: n is %d, want 1 to %d", sandbox.ErrInvalid, n, sandbox.MaxFork)
	}
	info, err := l.Snapshots.SnapshotInfo(ctx, tag)
	if err != nil {
		return 0, err
	}
	memory, err := os.Open(info.MemoryFile)
	if err != nil {
		return 0, fmt.Errorf("%w: open memory of snapshot %s: %w", sandbox.ErrNotRestorable, tag, err)
	}
	defer memory.Close()
	dev, err := l.OpenKVM()
	if err != nil {
		return 0, err
	}
	system, err := kvm.FromFile(dev)
	if err != nil {
		dev.Close()
		return 0, err
	}
	defer system.Close()
	took, err := Floor(FloorConfig{KVM: system, N: n, MemoryBytes: info.Shape.MemoryBytes(), Memory: memory})
	if err != nil {
		return 0, fmt.Errorf("measure the floor of snapshot %s: %w", tag, err)
	}
	return took, nil
}

// Copy is how long a plain copy of so many bytes takes, between buffers that
// were touched before: the least that a pause which copies them can take.
func (l Lab) Copy(bytes int64) (time.Duration, error) {
	if bytes < 0 || bytes > maxCopy {
		return 0, fmt.Errorf("%w: copy of %d bytes, want 0 to %d", sandbox.ErrInvalid, bytes, maxCopy)
	}
	from, to := make([]byte, bytes), make([]byte, bytes)
	for i := 0; i < len(from); i += 4096 {
		from[i], to[i] = 1, 1
	}
	start := time.Now()
	copy(to, from)
	return time.Since(start), nil
}

// maxCopy bounds Copy, in bytes.
const maxCopy = 1 << 30

// Host is what the figures were made on.
type Host struct {
	CPUs         int
	MemAvailable int64 // bytes
}

// Host reads the daemon's host now.
func (l Lab) Host() (Host, error) {
	free, err := sandbox.HostMemAvailable()
	return Host{CPUs: runtime.NumCPU(), MemAvailable: free}, err
}
