package compare

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/branchbench"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/chainbench"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/diskratio"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/usage"
	"github.com/forkd/forkd/internal/sys/diskbench"
)

// quiet is the rest of both sides before a lap, after their work for the last one.
const quiet = 500 * time.Millisecond

// forkSide forks from a snapshot. The benches fork and chain use it.
type forkSide struct {
	*daemon
	meter usage.Meter
	tag   string
	n     int
}

// Settle waits until the shells are ready.
func (f *forkSide) Settle(ctx context.Context) error {
	if err := measure.AwaitPool(ctx, f.client, f.tag, f.Pool); err != nil {
		return err
	}
	return measure.Pause(ctx, quiet)
}

// Lap runs one fork, and then one evaluation in each child in parallel if the child has an
// interpreter. It reads the usage of both while the children live.
func (f *forkSide) Lap(ctx context.Context) (_ []Value, err error) {
	before, err := f.meter.Daemon(f.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	res, err := measure.Fork(ctx, f.client, f.tag, f.n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, measure.Kill(ctx, f.client, res.OK())) }()
	after, err := f.meter.Daemon(f.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	values := append([]Value{
		{"armed_wall_ms", measure.Millis(res.ArmedWall)}, {"ready_wall_ms", measure.Millis(res.ReadyWall)},
	}, since(after, before)...)
	own, err := f.own(ctx, "", res.OK())
	if err != nil {
		return nil, err
	}
	if err := f.Settle(ctx); err != nil { // otherwise new shells would count as usage of the evaluations
		return nil, err
	}
	evaluated, err := f.evaluate(ctx, res.OK())
	return append(append(values, own), evaluated...), err
}

// own returns the private memory of the guests, by the kernel's account of their processes.
func (f *forkSide) own(ctx context.Context, when string, children []api.SandboxInfo) (Value, error) {
	v := Value{Name: when + "guest_dirty_kib"}
	for _, c := range children {
		use, err := f.client.Memory(ctx, c.ID)
		if err != nil {
			return v, err
		}
		v.V += float64(use.GuestDirtyKiB) / float64(len(children))
	}
	return v, nil
}

// evaluate runs the first evaluation in each child.
func (f *forkSide) evaluate(ctx context.Context, children []api.SandboxInfo) ([]Value, error) {
	const first = "first_eval_"
	before, err := f.meter.Daemon(f.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var all errgroup.Group
	for _, c := range children {
		all.Go(func() error {
			_, err := f.client.Eval(ctx, c.ID, api.EvalRequest{Code: "1 + 1"})
			return err
		})
	}
	err = all.Wait()
	if client.CodeOf(err) == api.CodeInvalid { // there is no interpreter
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	values := []Value{{first + "wall_ms", measure.Millis(time.Since(began))}}
	after, err := f.meter.Daemon(f.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	for _, v := range since(after, before) {
		values = append(values, Value{first + v.Name, v.V})
	}
	own, err := f.own(ctx, first, children)
	return append(values, own), err
}

// newForkSide returns a side with forks from the snapshot itself, or from a snapshot at the given
// depth of a chain on it.
func newForkSide(ctx context.Context, d *daemon, m usage.Meter, n, depth int) (*forkSide, error) {
	f := &forkSide{daemon: d, meter: m, tag: tag, n: n}
	if depth > 0 {
		var err error
		if f.tag, err = chainbench.Build(ctx, d.client, tag, depth); err != nil {
			return nil, err
		}
	}
	return f, d.client.SetPool(ctx, f.tag, d.Pool)
}

// branchSide branches one writing sandbox repeatedly.
type branchSide struct {
	*daemon
	meter  usage.Meter
	source *branchbench.Source
}

func newBranchSide(ctx context.Context, d *daemon, m usage.Meter) (*branchSide, error) {
	source, err := branchbench.Start(ctx,
		branchbench.Config{Client: d.client, DirtyMiB: dirtyMiB, RateMiB: rateMiB, Say: func(string) {}}, tag)
	return &branchSide{daemon: d, meter: m, source: source}, err
}

// The guest's writes are those of `forkd-bench branch`: at most a quarter of its memory.
const (
	dirtyMiB = 256
	rateMiB  = 50
)

// Settle waits until the work of the last branch has ended.
func (b *branchSide) Settle(ctx context.Context) error { return measure.Pause(ctx, quiet) }

// Lap takes one live branch, until its snapshot is written.
func (b *branchSide) Lap(ctx context.Context) ([]Value, error) {
	before, err := b.meter.Daemon(b.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	c, err := b.source.Branch(ctx, api.BranchLive)
	if err != nil {
		return nil, err
	}
	after, err := b.meter.Daemon(b.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	return append([]Value{
		{"pause_ms", c.PauseP50MS}, {"guest_gap_ms", c.GuestGapP50MS}, {"return_ms", c.ReturnP50MS}, {"total_ms", c.TotalMS},
	}, since(after, before)...), nil
}

// diskSide makes one sandbox write to its disk and read from it.
type diskSide struct {
	*daemon
	meter usage.Meter
	id    string
}

// Sizes of the file that each lap makes, writes, reads and removes.
const (
	diskMiB = 64
	diskOps = 2000
)

func newDiskSide(ctx context.Context, d *daemon, m usage.Meter) (*diskSide, error) {
	res, err := measure.Fork(ctx, d.client, tag, 1)
	if err != nil {
		return nil, err
	}
	return &diskSide{daemon: d, meter: m, id: res.OK()[0].ID}, nil
}

// Settle lets the host write back the data of the last lap.
func (s *diskSide) Settle(ctx context.Context) error { return measure.Pause(ctx, quiet) }

// Lap runs package diskbench once in the guest.
func (s *diskSide) Lap(ctx context.Context) ([]Value, error) {
	before, err := s.meter.Daemon(s.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	f, err := diskratio.InGuest(ctx, s.client, s.id, diskbench.Config{Dir: "/root", MiB: diskMiB, RandomOps: diskOps})
	if err != nil {
		return nil, err
	}
	after, err := s.meter.Daemon(s.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	return append([]Value{
		{"sequential_write_mib_per_s", f.SequentialWriteMiBPerS}, {"sequential_read_mib_per_s", f.SequentialReadMiBPerS},
		{"random_writes_per_s", f.RandomWritesPerS}, {"random_reads_per_s", f.RandomReadsPerS},
	}, since(after, before)...), nil
}

var (
	_ Side = (*diskSide)(nil)
	_ Side = (*forkSide)(nil)
	_ Side = (*branchSide)(nil)
)
