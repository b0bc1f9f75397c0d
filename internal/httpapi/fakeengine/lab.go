package fakeengine

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/bench"
	"github.com/forkd/forkd/internal/diskbench"
)

// Lab answers with fixed figures, for snapshots that the engine has.
type Lab struct{ Engine *Engine }

// Floor implements httpapi.Lab.
func (l Lab) Floor(ctx context.Context, tag string, n int) (time.Duration, error) {
	_, err := l.Engine.SnapshotInfo(ctx, tag)
	return time.Duration(n) * 100 * time.Microsecond, err
}

// Host implements httpapi.Lab.
func (l Lab) Host() (bench.Host, error) { return bench.Host{CPUs: 2, MemAvailable: 8 << 30}, nil }

// Copy implements httpapi.Lab.
func (Lab) Copy(bytes int64) (time.Duration, error) { return time.Duration(bytes), nil }

// Disk implements httpapi.Lab.
func (Lab) Disk(int, int) (diskbench.Figures, error) {
	return diskbench.Figures{SequentialWriteMiBPerS: 200, SequentialReadMiBPerS: 1000, RandomWritesPerS: 4000, RandomReadsPerS: 8000}, nil
}
