// Package diskratio is the benchmark of a sandbox's disk beside the file system below it. The same
// program (package diskbench) runs in a child and on the host of the VMs, in turn. The package owns
// the order and the ratios; it prints no output. The trap: an image without a writable disk has its
// files in memory, so it does not measure a disk.
package diskratio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/floor"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/internal/sys/diskbench"
)

// Config holds the parameters of the measurement.
type Config struct {
	Client    *client.Client
	Floors    floor.Floors
	Tag       string // the snapshot whose child writes
	Dir       string // directory in the child
	MiB       int
	RandomOps int
	Rounds    int
	// Say receives progress messages. May be nil.
	Say func(string)
}

// Figures holds the result (docs/inside/formats/json-output.md): medians over the rounds.
type Figures struct {
	MiB       int               `json:"mib"`
	RandomOps int               `json:"random_ops"`
	Rounds    int               `json:"rounds"`
	Guest     diskbench.Figures `json:"guest"`
	Host      diskbench.Figures `json:"host"`
	// Ratio is the guest's rate divided by the host's. At 1 the guest is as fast.
	Ratio Ratio  `json:"ratio"`
	Where string `json:"where"`
	CPUs  int    `json:"cpus,omitempty"`
}

// Ratio holds a ratio for each rate of the same name.
type Ratio struct {
	SequentialWrite float64 `json:"sequential_write"`
	SequentialRead  float64 `json:"sequential_read"`
	RandomWrite     float64 `json:"random_write"`
	RandomRead      float64 `json:"random_read"`
}

// agent is the path of the guest's agent, which contains the benchmark program.
const agent = "/proc/1/exe"

// Run measures. It ends its child.
func Run(ctx context.Context, c Config) (f Figures, err error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	f = Figures{MiB: c.MiB, RandomOps: c.RandomOps, Rounds: c.Rounds}
	if !c.Floors.Known() {
		return f, fmt.Errorf("measure the disk below: %w", floor.ErrNoHost)
	}
	of, err := c.Client.Snapshot(ctx, c.Tag)
	if err != nil {
		return f, err
	}
	below := diskbench.Config{Dir: floor.StoreDir(of.Dir), MiB: c.MiB, RandomOps: c.RandomOps}
	children, err := measure.Fork(ctx, c.Client, c.Tag, 1)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, measure.Kill(ctx, c.Client, children.OK())) }()
	var guest, host []diskbench.Figures
	for i := range c.Rounds {
		c.Say(fmt.Sprintf("round %d of %d", i+1, c.Rounds))
		h, err := c.Floors.Disk(ctx, below)
		if err != nil {
			return f, err
		}
		g, err := InGuest(ctx, c.Client, children.OK()[0].ID,
			diskbench.Config{Dir: c.Dir, MiB: c.MiB, RandomOps: c.RandomOps})
		if err != nil {
			return f, err
		}
		guest, host = append(guest, g), append(host, h)
	}
	f.Guest, f.Host = Median(guest), Median(host)
	f.Ratio = Of(f.Guest, f.Host)
	return f, nil
}

// InGuest measures in a sandbox, in a folder on the sandbox's disk.
func InGuest(ctx context.Context, c *client.Client, id string, of diskbench.Config) (f diskbench.Figures, err error) {
	r, err := c.Exec(ctx, id, api.ExecRequest{
		Args: []string{agent, "--disk-bench", of.Dir, "--disk-mib", strconv.Itoa(of.MiB),
			"--disk-ops", strconv.Itoa(of.RandomOps)},
		User: "root", TimeoutSecs: 600,
	})
	if err != nil {
		return f, err
	}
	if r.ExitCode != 0 {
		return f, fmt.Errorf("measure in the guest: exit code %d: %.300s (an agent of an older version cannot: make the "+
			"snapshot again)", r.ExitCode, r.Stderr)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &f); err != nil {
		return f, fmt.Errorf("read the guest's figures: %w", err)
	}
	return f, nil
}

// rates returns pointers to the rates in f, in a fixed order.
func rates(f *diskbench.Figures) []*float64 {
	return []*float64{&f.SequentialWriteMiBPerS, &f.SequentialReadMiBPerS, &f.RandomWritesPerS, &f.RandomReadsPerS}
}

// Median returns the median of each rate.
func Median(all []diskbench.Figures) (f diskbench.Figures) {
	for i, to := range rates(&f) {
		var v []float64
		for _, one := range all {
			v = append(v, *rates(&one)[i])
		}
		*to = measure.Median(v)
	}
	return f
}

// Of divides the first figures by the second.
func Of(guest, host diskbench.Figures) (r Ratio) {
	for i, to := range []*float64{&r.SequentialWrite, &r.SequentialRead, &r.RandomWrite, &r.RandomRead} {
		if h := *rates(&host)[i]; h > 0 {
			*to = *rates(&guest)[i] / h
		}
	}
	return r
}
