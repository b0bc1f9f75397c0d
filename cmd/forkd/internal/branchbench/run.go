// Package branchbench is the benchmark of branching a sandbox that writes: how
// long it is paused, by its VMM's account and by its own, and what that is to
// the bare copying of the bytes that were copied in the pause. It owns the order
// of the measurement and the figures; it prints nothing.
package branchbench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// Config is what to measure.
type Config struct {
	Client   *client.Client
	Tags     []string // of the snapshots whose children are branched
	Modes    []api.BranchMode
	Runs     int // branches per case
	DirtyMiB int // that the guest writes over and over; 0: it is idle
	RateMiB  int // per second
	// Say is told what is going on; nil: nobody is.
	Say func(string)
}

// Case is one row of the result (docs/formats/json-output.md).
type Case struct {
	Mode          api.BranchMode `json:"mode"`
	Tag           string         `json:"tag"`
	SourceMiB     int            `json:"source_mib"`
	DirtyMiB      int            `json:"dirty_mib"`
	DirtyMiBPerS  int            `json:"dirty_mib_per_s"`
	Runs          int            `json:"runs"`
	PauseP50MS    float64        `json:"pause_ms_p50"` // as the VMM sees it
	PauseP90MS    float64        `json:"pause_ms_p90"`
	PauseP99MS    float64        `json:"pause_ms_p99"`
	PauseFirstMS  float64        `json:"pause_ms_first"`
	PauseLastMS   float64        `json:"pause_ms_last"`
	GuestGapP50MS float64        `json:"guest_gap_ms_p50"` // as a guest sees it that stamps its clock in a loop
	GuestGapP99MS float64        `json:"guest_gap_ms_p99"`
	IdleGapMS     float64        `json:"guest_gap_ms_without"` // the same loop's largest gap in a second without a branch
	ReturnP50MS   float64        `json:"return_ms_p50"`        // when wait=false returned, as a client sees it
	TotalMS       float64        `json:"total_ms"`             // until the snapshot was ready; median
	BytesWritten  int64          `json:"bytes_written"`        // median
	PausedBytes   int64          `json:"paused_bytes"`         // median
	FloorMS       float64        `json:"floor_ms"`             // memcpy of paused_bytes, in the same run
	Rounds        int            `json:"rounds"`               // median
	Where         string         `json:"where"`
}

// Run measures every mode on a child of every tag. No child and no snapshot is left.
func Run(ctx context.Context, c Config) ([]Case, error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	var out []Case
	for _, tag := range c.Tags {
		info, err := c.Client.Snapshot(ctx, tag)
		if err != nil {
			return nil, err
		}
		for _, mode := range c.Modes {
			row, err := c.run(ctx, tag, mode)
			if err != nil {
				return nil, fmt.Errorf("%s branches of a child of %s: %w", mode, tag, err)
			}
			row.SourceMiB = info.MemoryMiB
			out = append(out, row)
		}
	}
	return out, nil
}

func (c Config) run(ctx context.Context, tag string, mode api.BranchMode) (Case, error) {
	one := 1
	f, err := c.Client.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: tag, N: &one})
	if err != nil {
		return Case{}, err
	}
	if failed := f.Failed(); len(failed) > 0 {
		return Case{}, fmt.Errorf("fork: %s", failed[0].Error)
	}
	sb := f.OK()[0]
	defer c.Client.Kill(context.WithoutCancel(ctx), sb.ID)
	if _, err := c.eval(ctx, sb.ID, fmt.Sprintf(setUp, c.DirtyMiB, max(c.RateMiB, 1))); err != nil {
		return Case{}, err
	}
	s := samples{}
	for i := range c.Runs {
		c.Say(fmt.Sprintf("%s, %s: branch %d of %d", tag, mode, i+1, c.Runs))
		if err := c.branch(ctx, sb.ID, mode, &s); err != nil {
			return Case{}, err
		}
	}
	row := s.row()
	row.Mode, row.Tag, row.DirtyMiB, row.DirtyMiBPerS = mode, tag, c.DirtyMiB, c.RateMiB
	floor, err := c.Client.CopyFloor(ctx, row.PausedBytes)
	row.FloorMS = floor.WallMS
	return row, err
}

// samples are what the branches of one case gave, in order.
type samples struct {
	pause, gap, idle, returned, total []float64
	bytes, paused, rounds             []float64
}

// branch takes one branch and waits until its snapshot is whole.
func (c Config) branch(ctx context.Context, id string, mode api.BranchMode, s *samples) error {
	if _, err := c.eval(ctx, id, readGap); err != nil { // begins a stretch
		return err
	}
	time.Sleep(time.Second)
	idle, err := c.gap(ctx, id)
	if err != nil {
		return err
	}
	began, no := time.Now(), false
	b, err := c.Client.Branch(ctx, id, api.BranchRequest{Mode: mode, Wait: &no})
	if err != nil {
		return err
	}
	defer c.Client.DeleteSnapshot(context.WithoutCancel(ctx), b.Tag, client.DeleteOptions{Force: true})
	s.returned = append(s.returned, millis(time.Since(began)))
	if err := c.awaitReady(ctx, b.Tag); err != nil {
		return err
	}
	s.total = append(s.total, millis(time.Since(began)))
	gap, err := c.gap(ctx, id)
	if err != nil {
		return err
	}
	s.gap, s.idle = append(s.gap, gap), append(s.idle, idle)
	if b.PauseMS != nil {
		s.pause = append(s.pause, *b.PauseMS)
	}
	s.bytes, s.paused = append(s.bytes, float64(b.BytesWritten)), append(s.paused, float64(b.PausedBytes))
	s.rounds = append(s.rounds, float64(b.Rounds))
	return nil
}

func (c Config) awaitReady(ctx context.Context, tag string) error {
	for {
		info, err := c.Client.Snapshot(ctx, tag)
		if err != nil {
			return err
		}
		if info.Status == api.SnapshotReady {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// gap is the largest gap between two stamps since the last call, in milliseconds.
func (c Config) gap(ctx context.Context, id string) (float64, error) {
	said, err := c.eval(ctx, id, readGap)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.Trim(said, "'"), 64)
}

func (c Config) eval(ctx context.Context, id, code string) (string, error) {
	r, err := c.Client.Eval(ctx, id, api.EvalRequest{Code: code})
	switch {
	case err != nil:
		return "", err
	case r.Error != nil && *r.Error != "":
		return "", fmt.Errorf("in the guest: %s", *r.Error)
	case r.Result == nil:
		return "", nil
	}
	return *r.Result, nil
}

func (s samples) row() Case {
	sorted := func(v []float64) []float64 { return slices.Sorted(slices.Values(v)) }
	median := func(v []float64) float64 { return quantile(sorted(v), 0.5) }
	pause, gap := sorted(s.pause), sorted(s.gap)
	row := Case{
		Runs: len(s.pause), PauseP50MS: quantile(pause, 0.5), PauseP90MS: quantile(pause, 0.9), PauseP99MS: quantile(pause, 0.99),
		GuestGapP50MS: quantile(gap, 0.5), GuestGapP99MS: quantile(gap, 0.99), IdleGapMS: median(s.idle),
		ReturnP50MS: median(s.returned), TotalMS: median(s.total), BytesWritten: int64(median(s.bytes)), PausedBytes: int64(median(s.paused)),
		Rounds: int(median(s.rounds)),
	}
	if n := len(s.pause); n > 0 {
		row.PauseFirstMS, row.PauseLastMS = s.pause[0], s.pause[n-1]
	}
	return row
}

// quantile is the nearest rank in a sorted list; 0 for none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
