package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/usage"
)

// Bench names a measurement.
type Bench string

// The benches. Chain forks from a snapshot at depth three of a chain.
const (
	Fork   Bench = "fork"
	Branch Bench = "branch"
	Chain  Bench = "chain"
	Disk   Bench = "disk"
)

// Benches returns all benches.
func Benches() []Bench { return []Bench{Fork, Branch, Chain, Disk} }

// Forks reports whether a lap forks a number of children.
func (b Bench) Forks() bool { return b == Fork || b == Chain }

const chainDepth = 3

// Config holds the parameters of a comparison on this host.
type Config struct {
	A, B      Build
	Image     string // name of both sides' images
	Bench     Bench
	N         int // children of a fork
	Rounds    int
	MemoryMiB int    // of the snapshots; if 0, the image's default
	Dir       string // parent of both sides' stores while the comparison runs; keep the path short for Unix sockets
	Say       func(string)
}

// Builds compares two builds. It removes all of its files and processes.
func Builds(ctx context.Context, c Config) (_ []Figure, err error) {
	dir, err := os.MkdirTemp(c.Dir, "compare-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := usage.Open(dir)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if !m.KVM() {
		c.Say("KVM's counters cannot be read (debugfs, by root): there are no figures of VM exits and guests' faults")
	}
	var sides [2]Side
	for i, b := range []Build{c.A, c.B} {
		name := string('A' + rune(i))
		c.Say(fmt.Sprintf("side %s: starting %s, making its snapshot", name, b.Dir))
		d, err := start(ctx, b, filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("side %s: %w", name, err)
		}
		defer func() { err = errors.Join(err, d.stop()) }()
		if sides[i], err = c.side(ctx, d, m); err != nil {
			return nil, fmt.Errorf("side %s: %w", name, err)
		}
	}
	return Run(ctx, sides[0], sides[1], c.Rounds, c.Say)
}

// side makes the snapshot to measure, and returns the side.
func (c Config) side(ctx context.Context, d *daemon, m usage.Meter) (Side, error) {
	if err := d.prepare(ctx, c.Image, c.MemoryMiB); err != nil {
		return nil, err
	}
	switch c.Bench {
	case Fork:
		return newForkSide(ctx, d, m, c.N, 0)
	case Chain:
		return newForkSide(ctx, d, m, c.N, chainDepth)
	case Branch:
		return newBranchSide(ctx, d, m)
	case Disk:
		return newDiskSide(ctx, d, m)
	}
	return nil, fmt.Errorf("bench %q, want one of %q", c.Bench, Benches())
}
