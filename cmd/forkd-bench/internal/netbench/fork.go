package netbench

import (
	"context"
	"errors"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/compare"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/netnative"
)

// Marks: the ratio with network to without, and the additional KiB of a child.
const (
	forkMark  = 1.02
	childMark = 410 // 0.4 MiB
)

// sample is the number of children whose memory is read.
const sample = 20

// forkSide forks children with or without network access.
type forkSide struct {
	Config
	net api.Net
}

var _ compare.Side = forkSide{}

// Settle waits until the shells are ready.
func (f forkSide) Settle(ctx context.Context) error {
	if err := measure.AwaitPool(ctx, f.Client, f.Tag, f.Pool); err != nil {
		return err
	}
	return measure.Pause(ctx, quiet)
}

// Lap runs one fork. It reads the memory after the children have been idle for a while.
func (f forkSide) Lap(ctx context.Context) (_ []compare.Value, err error) {
	res, err := measure.ForkAs(ctx, f.Client, api.CreateSandboxesRequest{SnapshotTag: f.Tag, N: &f.N, Net: f.net})
	if err != nil {
		return nil, err
	}
	children := res.OK()
	defer func() { err = errors.Join(err, measure.Kill(ctx, f.Client, children)) }()
	if err := measure.Pause(ctx, quiet); err != nil {
		return nil, err
	}
	children = children[:min(len(children), sample)]
	var kib float64
	for _, sb := range children {
		m, err := f.Client.Memory(ctx, sb.ID)
		if err != nil {
			return nil, err
		}
		kib += float64(m.VMMAnonKiB+m.GuestDirtyKiB) / float64(len(children))
	}
	children = res.OK()
	return []compare.Value{
		{Name: "fork_armed", V: measure.Millis(res.ArmedWall)}, {Name: "fork_ready", V: measure.Millis(res.ReadyWall)},
		{Name: "idle_child", V: kib},
	}, nil
}

func (c Config) forks(ctx context.Context) (all []netnative.Figure, err error) {
	figures, err := compare.Run(ctx, forkSide{c, api.NetNone}, forkSide{c, api.NetPublic}, c.Rounds, c.Say)
	for _, f := range figures {
		if f.Name == "idle_child" {
			child := netnative.Figure{Name: f.Name, Unit: "KiB", Value: f.B}
			all = append(all, child.Beside(f.A, netnative.Difference).Most(childMark))
			continue
		}
		all = append(all, ratio(f, "ms").Most(forkMark))
	}
	return all, err
}
