package lifebench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/compare"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// Config holds the parameters of the measurement.
type Config struct {
	Client   *client.Client
	Tag      string // the snapshot of the paused children
	Rounds   int
	DirtyMiB int // written by a child to its memory before each branch or pause
	// Say receives progress messages. May be nil.
	Say func(string)
}

// Cycle holds the times of pausing and resuming, by the client's clock
// (docs/inside/formats/json-output.md).
type Cycle struct {
	Tag      string `json:"tag"`
	Rounds   int    `json:"rounds"`
	DirtyMiB int    `json:"dirty_mib"`
	// Pause compares a pause (b) with a diff branch of the same sandbox just before (a).
	Pause compare.Figure `json:"pause"`
	// Resume compares a resume until the guest has confirmed (b) with a fork of one child from that
	// branch (a).
	Resume      compare.Figure `json:"resume"`
	PauseMS     []float64      `json:"pauses_ms"` // in order
	ResumeMS    []float64      `json:"resumes_ms"`
	BranchMS    []float64      `json:"branches_ms"`
	ForkMS      []float64      `json:"forks_ms"`
	PauseP90    float64        `json:"pause_ms_p90"`
	ResumeP90   float64        `json:"resume_ms_p90"`
	PauseBytes  float64        `json:"pause_bytes"` // captured memory; median
	BranchBytes float64        `json:"branch_bytes"`
	// PauseSteps, BranchSteps and ResumeSteps hold the daemon's own account of the steps, from the
	// receipts; medians.
	PauseSteps  []measure.Step `json:"pause_steps"`
	BranchSteps []measure.Step `json:"branch_steps"`
	ResumeSteps []measure.Step `json:"resume_steps"`
}

// laps holds the results of the rounds.
type laps struct {
	branch, pause, fork, resume, bytes, branchBytes []float64

	branchSteps, pauseSteps, resumeSteps measure.Steps
}

// step is the work of the child's Python before each branch and each pause.
const step = `import os
with open("/dev/shm/bench", "wb") as f:
    for _ in range(%d):
        f.write(os.urandom(1 << 20))
with open("/var/tmp/bench", "wb") as f:
    f.write(os.urandom(1 << 20))
    f.flush()
    os.fsync(f.fileno())
`

// stepLimit bounds the work. The first touch of a page is slow where KVM is emulated.
const stepLimit = 5 * time.Minute

// Run measures. It removes all of its children and snapshots.
func Run(ctx context.Context, c Config) (Cycle, error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	var l laps
	for round := range c.Rounds + 1 { // the first round fills caches, and does not count
		c.Say(fmt.Sprintf("round %d of %d", round, c.Rounds))
		into := &l
		if round == 0 {
			into = &laps{}
		}
		if err := c.round(ctx, round, into); err != nil {
			return Cycle{}, err
		}
	}
	return l.cycle(c), nil
}

func (l *laps) cycle(c Config) Cycle {
	return Cycle{
		Tag: c.Tag, Rounds: c.Rounds, DirtyMiB: c.DirtyMiB,
		Pause: compare.Pair("pause", l.branch, l.pause), Resume: compare.Pair("resume", l.fork, l.resume),
		PauseMS: l.pause, ResumeMS: l.resume, BranchMS: l.branch, ForkMS: l.fork,
		PauseP90: measure.Quantile(l.pause, 0.9), ResumeP90: measure.Quantile(l.resume, 0.9),
		PauseBytes: measure.Median(l.bytes), BranchBytes: measure.Median(l.branchBytes),
		PauseSteps: l.pauseSteps.Medians(), BranchSteps: l.branchSteps.Medians(), ResumeSteps: l.resumeSteps.Medians(),
	}
}

// round branches and pauses one child, forks from the branch and resumes the child.
func (c Config) round(ctx context.Context, n int, l *laps) (err error) {
	r, err := measure.Fork(ctx, c.Client, c.Tag, 1)
	if err != nil {
		return err
	}
	id := r.OK()[0].ID
	defer func() { err = errors.Join(err, measure.Kill(ctx, c.Client, r.OK())) }()
	tag := fmt.Sprintf("bench-life-%s", id)
	defer func() { err = errors.Join(err, measure.Delete(ctx, c.Client, tag, client.DeleteOptions{})) }()
	first := tag + "-first" // only the first capture finds cold caches and the data in the disk's overlay
	defer func() { err = errors.Join(err, measure.Delete(ctx, c.Client, first, client.DeleteOptions{})) }()
	if err := c.branch(ctx, id, first, &laps{}); err != nil {
		return err
	}
	if err := c.branch(ctx, id, tag, l); err != nil {
		return err
	}
	if err := c.pause(ctx, id, l); err != nil {
		return err
	}
	turns := []func() error{
		func() error { return c.fork(ctx, tag, l) }, func() error { return c.resume(ctx, id, l) },
	}
	for i := range turns { // the order alternates
		if err := turns[(i+n)%len(turns)](); err != nil {
			return err
		}
	}
	return nil
}

// work makes the child write the memory for the next capture.
func (c Config) work(ctx context.Context, id string) error {
	_, err := measure.Eval(ctx, c.Client, id, fmt.Sprintf(step, c.DirtyMiB), stepLimit)
	return err
}

func (c Config) branch(ctx context.Context, id, tag string, l *laps) error {
	if err := c.work(ctx, id); err != nil {
		return err
	}
	began := time.Now()
	r, err := c.Client.Branch(ctx, id, api.BranchRequest{Tag: tag, Mode: api.BranchDiff})
	if err != nil {
		return err
	}
	l.branchBytes = append(l.branchBytes, float64(r.BytesWritten))
	l.branch = append(l.branch, measure.Millis(time.Since(began)))
	receipt, err := c.Client.SnapshotReceipt(ctx, tag)
	l.branchSteps.Add(receipt.Steps)
	return err
}

func (c Config) pause(ctx context.Context, id string, l *laps) error {
	if err := c.work(ctx, id); err != nil {
		return err
	}
	began := time.Now()
	if _, err := c.life().Pause(ctx, id, api.PauseRequest{}); err != nil {
		return err
	}
	l.pause = append(l.pause, measure.Millis(time.Since(began)))
	receipt, err := c.Client.SandboxReceipt(ctx, id)
	l.pauseSteps.Add(receipt.Steps)
	if receipt.Capture != nil {
		l.bytes = append(l.bytes, float64(receipt.Capture.Bytes))
	}
	return err
}

func (c Config) life() client.Life { return client.Life{Client: c.Client} }

// fork makes a child of a snapshot of the same depth as the paused sandbox's snapshot.
func (c Config) fork(ctx context.Context, tag string, l *laps) error {
	began := time.Now()
	r, err := measure.Fork(ctx, c.Client, tag, 1)
	if err != nil {
		return err
	}
	l.fork = append(l.fork, measure.Millis(time.Since(began)))
	return measure.Kill(ctx, c.Client, r.OK())
}

func (c Config) resume(ctx context.Context, id string, l *laps) error {
	began := time.Now()
	if _, err := c.life().Resume(ctx, id); err != nil {
		return err
	}
	l.resume = append(l.resume, measure.Millis(time.Since(began)))
	receipt, err := c.Client.SandboxReceipt(ctx, id)
	l.resumeSteps.Add(receipt.Steps)
	return err
}
