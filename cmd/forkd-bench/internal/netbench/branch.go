package netbench

import (
	"context"
	"errors"
	"fmt"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/branchbench"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/compare"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/netnative"
)

// The guest's writes, which are those of `forkd-bench branch`, and its download beside them.
const (
	dirtyMiB          = 256
	rateMiB           = 50
	downloadBytesPerS = 16 << 20
)

// branchSide branches one writing sandbox repeatedly.
type branchSide struct{ source *branchbench.Source }

var _ compare.Side = branchSide{}

// Settle waits until the work of the last branch has ended.
func (b branchSide) Settle(ctx context.Context) error { return measure.Pause(ctx, quiet) }

// Lap takes one live branch, until its snapshot is written.
func (b branchSide) Lap(ctx context.Context) ([]compare.Value, error) {
	one, err := b.source.Branch(ctx, api.BranchLive)
	return []compare.Value{
		{Name: "branch_pause", V: one.PauseP50MS}, {Name: "branch_guest_gap", V: one.GuestGapP50MS},
	}, err
}

// branches compares live branches of a downloading sandbox with branches of a sandbox without
// network.
func (c Config) branches(ctx context.Context) (all []netnative.Figure, err error) {
	cfg := branchbench.Config{
		Client: c.Client, DirtyMiB: dirtyMiB, RateMiB: rateMiB, Net: api.NetNone, Say: func(string) {},
	}
	without, err := branchbench.Start(ctx, cfg, c.Tag)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, without.Stop(ctx)) }()
	cfg.Net, cfg.Network = "", c.reachHost()
	cfg.Network.Limits = &api.NetworkLimits{BytesPerSecond: downloadBytesPerS}
	with, err := branchbench.Start(ctx, cfg, c.Tag)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, with.Stop(ctx)) }()
	if err := with.Eval(ctx, carry+fmt.Sprintf(download, c.HostPort)); err != nil {
		return nil, fmt.Errorf("begin a download: %w", err)
	}
	figures, err := compare.Run(ctx, branchSide{without}, branchSide{with}, c.Rounds, c.Say)
	for _, f := range figures {
		all = append(all, ratio(f, "ms"))
	}
	return all, err
}
