package chainbench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// Config holds the parameters of the measurement.
type Config struct {
	Client  *client.Client
	Tag     string // the snapshot below the chain
	Depths  []int
	N       int // children of a fork
	Rounds  int
	StepMiB int // written by each step in memory, and again on the disk
	// Crowd is the number of children forked at CrowdDepth, to measure their shared memory.
	Crowd, CrowdDepth int
	Keep              bool // leave the chain for the next run
	// Say receives progress messages. May be nil.
	Say func(string)
}

// Row is one depth (docs/inside/formats/json-output.md).
type Row struct {
	Depth       int     `json:"depth"`
	N           int     `json:"n"`
	Rounds      int     `json:"rounds"`
	ArmedWallMS float64 `json:"armed_wall_ms"` // median
	ReadyWallMS float64 `json:"ready_wall_ms"` // median
	RatioToBase float64 `json:"ratio_to_base"` // median of the ratios to the fork from depth 0 just before
	LayerBytes  int64   `json:"layer_bytes"`   // on the disk, of this depth's memory layer
	DirtyBytes  int64   `json:"dirty_bytes"`   // captured bytes
	// These fields are set at CrowdDepth only.
	Crowd             int    `json:"crowd,omitempty"`
	PSSKiBPerChild    int64  `json:"pss_kib_per_child,omitempty"`
	OwnKiBPerChild    int64  `json:"own_kib_per_child,omitempty"`    // guest memory written by the child
	SharedKiBPerChild int64  `json:"shared_kib_per_child,omitempty"` // guest memory shared with other processes
	Where             string `json:"where"`
	CPUs              int    `json:"cpus,omitempty"`
}

// Run builds the chain, measures and removes the chain again. The first row is depth 0.
func Run(ctx context.Context, c Config) (rows []Row, err error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	ch, err := c.build(ctx, slices.Max(append(slices.Clone(c.Depths), c.CrowdDepth)))
	defer func() {
		if !c.Keep { // snapshots made so far are complete, even after an error
			err = errors.Join(err, c.remove(ctx, ch))
		}
	}()
	if err != nil {
		return nil, err
	}
	times, err := c.race(ctx, ch)
	if err != nil {
		return nil, err
	}
	for _, depth := range append([]int{0}, c.Depths...) {
		row := times[depth].row(depth)
		row.N, row.Rounds = c.N, c.Rounds
		if row.LayerBytes, row.DirtyBytes, err = c.sizes(ctx, ch, depth); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return c.crowd(ctx, ch, rows)
}

func (c *Config) check() error {
	slices.Sort(c.Depths)
	c.Depths = slices.Compact(c.Depths)
	switch {
	case len(c.Depths) == 0 || c.Depths[0] < 1 || c.Depths[len(c.Depths)-1] > 50:
		return errors.New("depths are 1 to 50")
	case c.N < 1 || c.Rounds < 1 || c.StepMiB < 1 || c.StepMiB > 64:
		return errors.New("children and rounds are at least 1, MiB per step 1 to 64")
	case c.Crowd > 0 && !slices.Contains(c.Depths, c.CrowdDepth):
		c.CrowdDepth = c.Depths[len(c.Depths)-1]
	}
	return nil
}

// laps holds the forks of one depth.
type laps struct{ armed, ready, ratio []float64 }

func (l laps) row(depth int) Row {
	return Row{Depth: depth, ArmedWallMS: measure.Median(l.armed), ReadyWallMS: measure.Median(l.ready),
		RatioToBase: measure.Median(l.ratio)}
}

// race forks from each depth in turn, and each time from depth 0 just before. Other load on the
// host then affects both alike.
func (c Config) race(ctx context.Context, ch chain) (_ map[int]laps, err error) {
	pooled := []string{c.Tag}
	for _, depth := range c.Depths {
		pooled = append(pooled, ch.tags[depth])
	}
	for _, tag := range pooled {
		restore, failed := measure.Pool(ctx, c.Client, tag, c.N)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, restore()) }()
	}
	// All pools are full before each fork, so that it finds ready shells and no shell is being made
	// meanwhile.
	fork := func(tag string, into *client.ForkResult) error {
		for _, t := range pooled {
			if err := measure.AwaitPool(ctx, c.Client, t, c.N); err != nil {
				return err
			}
		}
		return c.fork(ctx, tag, into)
	}
	var first client.ForkResult
	for _, tag := range pooled { // fills the caches
		if err := fork(tag, &first); err != nil {
			return nil, err
		}
	}
	times := map[int]laps{}
	for round := range c.Rounds {
		c.Say(fmt.Sprintf("round %d of %d", round+1, c.Rounds))
		for _, depth := range c.Depths {
			var base, deep client.ForkResult
			if err := fork(c.Tag, &base); err != nil {
				return nil, err
			}
			if err := fork(ch.tags[depth], &deep); err != nil {
				return nil, err
			}
			times[0] = times[0].add(base, base)
			times[depth] = times[depth].add(deep, base)
		}
	}
	return times, nil
}

func (l laps) add(r, base client.ForkResult) laps {
	l.armed = append(l.armed, measure.Millis(r.ArmedWall))
	l.ready = append(l.ready, measure.Millis(r.ReadyWall))
	if base.ReadyWall > 0 {
		l.ratio = append(l.ratio, float64(r.ReadyWall)/float64(base.ReadyWall))
	}
	return l
}

// fork makes children and ends them.
func (c Config) fork(ctx context.Context, tag string, into *client.ForkResult) (err error) {
	if *into, err = measure.Fork(ctx, c.Client, tag, c.N); err == nil {
		err = measure.Kill(ctx, c.Client, into.OK())
	}
	return err
}

// sizes returns the size of the layer at a depth: the size of this layer and all below, minus the
// size of all below.
func (c Config) sizes(ctx context.Context, ch chain, depth int) (layer, dirty int64, err error) {
	info, err := c.Client.Snapshot(ctx, ch.tags[depth])
	if err != nil || depth == 0 {
		return info.MemoryPhysicalBytes, info.MemoryPhysicalBytes, err
	}
	below, err := c.Client.Snapshot(ctx, ch.tags[depth-1])
	layer = info.MemoryPhysicalBytes - below.MemoryPhysicalBytes
	if layer < 0 { // it has no layer below
		layer = info.MemoryPhysicalBytes
	}
	return layer, info.CapturedBytes, err
}

// crowd forks many children of one depth and reads the memory use of each from the kernel.
func (c Config) crowd(ctx context.Context, ch chain, rows []Row) (_ []Row, err error) {
	if c.Crowd == 0 {
		return rows, nil
	}
	c.Say(fmt.Sprintf("%d children of depth %d", c.Crowd, c.CrowdDepth))
	r, err := measure.Fork(ctx, c.Client, ch.tags[c.CrowdDepth], c.Crowd)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, measure.Kill(ctx, c.Client, r.OK())) }()
	var sum api.MemoryUse
	for _, sb := range r.OK() {
		use, err := c.Client.Memory(ctx, sb.ID)
		if err != nil {
			return nil, err
		}
		sum.PSSKiB, sum.GuestDirtyKiB, sum.GuestSharedKiB = sum.PSSKiB+use.PSSKiB, sum.GuestDirtyKiB+use.GuestDirtyKiB,
			sum.GuestSharedKiB+use.GuestSharedKiB
	}
	n := int64(c.Crowd)
	for i := range rows {
		if rows[i].Depth == c.CrowdDepth {
			rows[i].Crowd = c.Crowd
			rows[i].PSSKiBPerChild, rows[i].OwnKiBPerChild, rows[i].SharedKiBPerChild = sum.PSSKiB/n, sum.GuestDirtyKiB/n,
				sum.GuestSharedKiB/n
		}
	}
	return rows, nil
}
