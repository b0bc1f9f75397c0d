// Package branchbench is the benchmark of branching a sandbox that writes: how
// long it is paused, by its VMM's account and by its own, and what that is to
// the bare copying of the bytes that were copied in the pause. It owns the order
// of the measurement and the figures; it prints nothing.
package branchbench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/floor"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/cmd/internal/snapshots"
)

// Config is what to measure.
type Config struct {
	Client   *client.Client
	Floors   floor.Floors // unknown: the figures are without
	Tags     []string     // of the snapshots whose children are branched
	Modes    []api.BranchMode
	Runs     []int // branches per case, by tag; the last is for the tags left
	DiffRuns int   // the same of mode diff, whose pauses vary little; 0: as Runs
	// DirtyMiB is what the guest writes over and over, but no more than a quarter of its
	// memory; 0: it is idle.
	DirtyMiB int
	RateMiB  int // per second
	// Net is what the child may reach; empty: what its snapshot says.
	Net api.Net
	// Network is the same, in rules; nil: Net holds.
	Network *api.NetworkPolicy
	// Say is told what is going on; nil: nobody is.
	Say func(string)
}

// Case is one row of the result (docs/inside/formats/json-output.md).
type Case struct {
	Mode             api.BranchMode `json:"mode"`
	Tag              string         `json:"tag"`
	SourceMiB        int            `json:"source_mib"`
	DirtyMiB         int            `json:"dirty_mib"`
	DirtyMiBPerS     int            `json:"dirty_mib_per_s"`
	Runs             int            `json:"runs"`
	PauseP50MS       float64        `json:"pause_ms_p50"` // as the VMM sees it
	PauseP90MS       float64        `json:"pause_ms_p90"`
	PauseP99MS       float64        `json:"pause_ms_p99"`
	PauseFirstMS     float64        `json:"pause_ms_first"`
	PauseLastMS      float64        `json:"pause_ms_last"`
	PausesMS         []float64      `json:"pauses_ms"`        // in order
	PauseSteps       []measure.Step `json:"pause_steps"`      // medians of what the pauses were spent on, by the VMM's clock
	GuestGapP50MS    float64        `json:"guest_gap_ms_p50"` // as a guest sees it that stamps its clock in a loop
	GuestGapP99MS    float64        `json:"guest_gap_ms_p99"`
	IdleGapMS        float64        `json:"guest_gap_ms_without"`       // the same loop's largest gap in a second without a branch
	ReturnP50MS      float64        `json:"return_ms_p50"`              // when wait=false returned, as a client sees it
	AfterResumeP50MS float64        `json:"return_after_resume_ms"`     // median from the source's running again to that return, by the daemon's clock
	AfterResumeP99MS float64        `json:"return_after_resume_ms_p99"` // the same
	TotalMS          float64        `json:"total_ms"`                   // until the snapshot was ready; median
	BytesWritten     int64          `json:"bytes_written"`              // median
	PausedBytes      int64          `json:"paused_bytes"`               // median
	FloorMS          float64        `json:"floor_ms,omitempty"`         // memcpy of paused_bytes, in the same run; median of three
	Rounds           int            `json:"rounds"`                     // median
	Where            string         `json:"where"`
	CPUs             int            `json:"cpus,omitempty"`
}

// Run measures every mode on a child of every tag. No child and no snapshot is left.
func Run(ctx context.Context, c Config) ([]Case, error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	var out []Case
	for i, tag := range c.Tags {
		info, err := c.Client.Snapshot(ctx, tag)
		if err != nil {
			return nil, err
		}
		for _, mode := range c.Modes {
			row, err := c.run(ctx, info, mode, c.Runs[min(i, len(c.Runs)-1)])
			if err != nil {
				return nil, fmt.Errorf("%s branches of a child of %s: %w", mode, tag, err)
			}
			out = append(out, row)
		}
	}
	return out, nil
}

func (c Config) run(ctx context.Context, of api.SnapshotDetail, mode api.BranchMode, runs int) (_ Case, err error) {
	s, err := c.start(ctx, of)
	if err != nil {
		return Case{}, err
	}
	defer func() { err = errors.Join(err, s.Stop(ctx)) }()
	if mode == api.BranchDiff && c.DiffRuns > 0 {
		runs = c.DiffRuns
	}
	for i := range runs {
		c.Say(fmt.Sprintf("%s, %s: branch %d of %d", of.Tag, mode, i+1, runs))
		if err := s.branch(ctx, mode, &s.samples); err != nil {
			return Case{}, err
		}
	}
	row := s.samples.row()
	row.Mode, row.Tag, row.SourceMiB, row.DirtyMiB, row.DirtyMiBPerS = mode, of.Tag, of.MemoryMiB, s.dirty, c.RateMiB
	row.FloorMS, err = c.floor(ctx, row.PausedBytes)
	return row, err
}

// Source is a sandbox that writes, to be branched again and again.
type Source struct {
	Config
	sandbox  api.SandboxInfo
	dirty    int // MiB that it writes over
	branches int
	samples  samples
}

// Start forks a child of a snapshot and has it write. Stop ends it.
func Start(ctx context.Context, c Config, tag string) (*Source, error) {
	info, err := c.Client.Snapshot(ctx, tag)
	if err != nil {
		return nil, err
	}
	return c.start(ctx, info)
}

// Eval runs Python in the sandbox.
func (s *Source) Eval(ctx context.Context, code string) error {
	_, err := measure.Eval(ctx, s.Client, s.sandbox.ID, code, setUpLimit)
	return err
}

// Stop ends the sandbox, also when ctx has ended.
func (s *Source) Stop(ctx context.Context) error {
	return measure.Kill(ctx, s.Client, []api.SandboxInfo{s.sandbox})
}

// Branch takes one branch, and waits until its snapshot is whole; it is deleted.
func (s *Source) Branch(ctx context.Context, mode api.BranchMode) (Case, error) {
	var one samples
	err := s.branch(ctx, mode, &one)
	return one.row(), err
}

// Limits of what is asked of the guest. Touching a large buffer for the first
// time is a fault per page, which takes long where KVM is emulated.
const (
	setUpLimit = 5 * time.Minute
	gapLimit   = time.Minute
)

// start forks a child, has the guest fill its buffer and then write over it, and
// measures its own gaps without any branch.
func (c Config) start(ctx context.Context, of api.SnapshotDetail) (_ *Source, err error) {
	req := api.CreateSandboxesRequest{SnapshotTag: of.Tag, Net: c.Net, Network: c.Network}
	f, err := measure.ForkAs(ctx, c.Client, req)
	if err != nil {
		return nil, err
	}
	s := &Source{Config: c, sandbox: f.OK()[0], dirty: min(c.DirtyMiB, of.MemoryMiB/4)}
	if err := s.write(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

func (s *Source) write(ctx context.Context) error {
	code := fmt.Sprintf(setUp, s.dirty, max(s.RateMiB, 1))
	if _, err := measure.Eval(ctx, s.Client, s.sandbox.ID, code, setUpLimit); err != nil {
		return err
	}
	for range 3 {
		if _, err := s.gap(ctx); err != nil { // begins a stretch
			return err
		}
		if err := measure.Pause(ctx, time.Second); err != nil {
			return err
		}
		gap, err := s.gap(ctx)
		if err != nil {
			return err
		}
		s.samples.idle = append(s.samples.idle, gap)
	}
	return nil
}

func (c Config) floor(ctx context.Context, bytes int64) (float64, error) {
	if !c.Floors.Known() {
		return 0, nil
	}
	var took []float64
	for range 3 {
		ms, err := c.Floors.Copy(ctx, bytes)
		if err != nil {
			return 0, err
		}
		took = append(took, ms)
	}
	return measure.Median(took), nil
}

// samples are what the branches of one case gave, in order.
type samples struct {
	pause, gap, idle, returned, after, total []float64
	bytes, paused, rounds                    []float64
	steps                                    measure.Steps
}

// branch takes one branch and waits until its snapshot is whole.
func (s *Source) branch(ctx context.Context, mode api.BranchMode, into *samples) (err error) {
	s.branches++
	tag := branchTag(s.sandbox.ID, s.branches)
	if _, err := s.gap(ctx); err != nil { // begins a stretch
		return err
	}
	began, no := time.Now(), false
	// Before it is there: it may be made though its answer is lost.
	defer func() { err = errors.Join(err, measure.Delete(ctx, s.Client, tag, client.DeleteOptions{Force: true})) }()
	b, err := s.Client.Branch(ctx, s.sandbox.ID, api.BranchRequest{Tag: tag, Mode: mode, Wait: &no})
	if err != nil {
		return err
	}
	into.returned, into.after = append(into.returned, measure.Millis(time.Since(began))),
		append(into.after, b.AfterResumeMS)
	if err := snapshots.AwaitReady(ctx, s.Client, b.Tag); err != nil {
		return err
	}
	into.total = append(into.total, measure.Millis(time.Since(began)))
	receipt, err := s.Client.SnapshotReceipt(ctx, b.Tag)
	if err != nil {
		return err
	}
	if receipt.Capture != nil {
		into.steps.Add(receipt.Capture.PauseSteps)
	}
	gap, err := s.gap(ctx)
	if err != nil {
		return err
	}
	into.gap = append(into.gap, gap)
	if b.PauseMS != nil {
		into.pause = append(into.pause, *b.PauseMS)
	}
	into.bytes, into.paused = append(into.bytes, float64(b.BytesWritten)), append(into.paused, float64(b.PausedBytes))
	into.rounds = append(into.rounds, float64(b.Rounds))
	return nil
}

// gap is the largest gap between two stamps since the last call, in milliseconds.
func (s *Source) gap(ctx context.Context) (float64, error) {
	said, err := measure.Eval(ctx, s.Client, s.sandbox.ID, readGap, gapLimit)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.Trim(said, "'"), 64)
}

func (s samples) row() Case {
	row := Case{
		Runs: len(s.pause), PausesMS: s.pause,
		PauseP50MS: measure.Median(s.pause), PauseP90MS: measure.Quantile(s.pause, 0.9),
		PauseP99MS:    measure.Quantile(s.pause, 0.99),
		GuestGapP50MS: measure.Median(s.gap), GuestGapP99MS: measure.Quantile(s.gap, 0.99), IdleGapMS: measure.Median(s.idle),
		ReturnP50MS: measure.Median(s.returned), AfterResumeP50MS: measure.Median(s.after),
		AfterResumeP99MS: measure.Quantile(s.after, 0.99),
		TotalMS:          measure.Median(s.total), BytesWritten: int64(measure.Median(s.bytes)),
		PausedBytes: int64(measure.Median(s.paused)),
		Rounds:      int(measure.Median(s.rounds)),
		PauseSteps:  s.steps.Medians(),
	}
	if n := len(s.pause); n > 0 {
		row.PauseFirstMS, row.PauseLastMS = s.pause[0], s.pause[n-1]
	}
	return row
}
