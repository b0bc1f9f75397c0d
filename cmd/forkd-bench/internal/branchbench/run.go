// Package branchbench is the benchmark of branching a writing sandbox. It measures the pause by the
// clock of the VMM and by the guest's clock, and compares it with a bare copy of the same number of
// bytes. It owns the order of the measurement and the figures; it prints no output.
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

// Config holds the parameters of the measurement.
type Config struct {
	Client   *client.Client
	Floors   floor.Floors // if unknown, floor figures are left out
	Tags     []string     // snapshots whose children are branched
	Modes    []api.BranchMode
	Runs     []int // branches per case, by tag; the last value is for all further tags
	DiffRuns int   // runs of mode diff, with similar pauses; if 0, as Runs
	// DirtyMiB is the size of the guest's buffer, at most a quarter of its memory. The guest writes
	// over it repeatedly. If 0, the guest is idle.
	DirtyMiB int
	RateMiB  int // per second
	// Net is the child's network access. If empty, the snapshot's setting applies.
	Net api.Net
	// Network is the child's network access as rules. If nil, Net applies.
	Network *api.NetworkPolicy
	// Say receives progress messages. May be nil.
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
	PauseP50MS       float64        `json:"pause_ms_p50"` // by the VMM's clock
	PauseP90MS       float64        `json:"pause_ms_p90"`
	PauseP99MS       float64        `json:"pause_ms_p99"`
	PauseFirstMS     float64        `json:"pause_ms_first"`
	PauseLastMS      float64        `json:"pause_ms_last"`
	PausesMS         []float64      `json:"pauses_ms"`        // in order
	PauseSteps       []measure.Step `json:"pause_steps"`      // medians of the steps of the pauses, by the VMM's clock
	GuestGapP50MS    float64        `json:"guest_gap_ms_p50"` // by the clock of a guest process that stamps it in a loop
	GuestGapP99MS    float64        `json:"guest_gap_ms_p99"`
	IdleGapMS        float64        `json:"guest_gap_ms_without"`       // the same, in a second without a branch
	ReturnP50MS      float64        `json:"return_ms_p50"`              // of a call with wait=false, by the client's clock
	AfterResumeP50MS float64        `json:"return_after_resume_ms"`     // median, since the resume, by the daemon's clock
	AfterResumeP99MS float64        `json:"return_after_resume_ms_p99"` // the same
	TotalMS          float64        `json:"total_ms"`                   // until the snapshot was ready; median
	BytesWritten     int64          `json:"bytes_written"`              // median
	PausedBytes      int64          `json:"paused_bytes"`               // median
	FloorMS          float64        `json:"floor_ms,omitempty"`         // memcpy of paused_bytes, in the same run; median of three
	Rounds           int            `json:"rounds"`                     // median
	Where            string         `json:"where"`
	CPUs             int            `json:"cpus,omitempty"`
}

// Run measures every mode on a child of every tag. It removes all of its children and snapshots.
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

// Source is a writing sandbox for repeated branches.
type Source struct {
	Config
	sandbox  api.SandboxInfo
	dirty    int // size in MiB of its buffer
	branches int
	samples  samples
}

// Start forks a child of a snapshot and starts its writer. The caller ends it with Stop.
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

// Stop ends the sandbox, even if ctx has ended.
func (s *Source) Stop(ctx context.Context) error {
	return measure.Kill(ctx, s.Client, []api.SandboxInfo{s.sandbox})
}

// Branch takes one branch, waits until its snapshot is complete, and deletes the snapshot.
func (s *Source) Branch(ctx context.Context, mode api.BranchMode) (Case, error) {
	var one samples
	err := s.branch(ctx, mode, &one)
	return one.row(), err
}

// Limits of requests to the guest. The first touch of a large buffer takes a fault per page, which
// is slow where KVM is emulated.
const (
	setUpLimit = 5 * time.Minute
	gapLimit   = time.Minute
)

// start forks a child and makes the guest fill its buffer and then write over it. It measures the
// guest's own gaps without any branch.
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
		if _, err := s.gap(ctx); err != nil { // resets the gap
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

// samples are the results of the branches of one case, in order.
type samples struct {
	pause, gap, idle, returned, after, total []float64
	bytes, paused, rounds                    []float64
	steps                                    measure.Steps
}

// branch takes one branch and waits until its snapshot is complete.
func (s *Source) branch(ctx context.Context, mode api.BranchMode, into *samples) (err error) {
	s.branches++
	tag := branchTag(s.sandbox.ID, s.branches)
	if _, err := s.gap(ctx); err != nil { // resets the gap
		return err
	}
	began, no := time.Now(), false
	// The deletion is deferred before the request: the snapshot may be made even if the answer is
	// lost.
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

// gap returns the largest gap in milliseconds between two stamps since the last call.
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
