package netbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/compare"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/netnative"
)

// Config holds the parameters of the measurement.
type Config struct {
	Client *client.Client
	Tag    string
	N      int // children of a fork
	Rounds int // pairs
	Pool   int // shells to have ready before each fork
	// HostPort is the port of the daemon's host where Answer answers. If 0, Run measures no streams
	// and no branches.
	HostPort int
	Say      func(string)
}

// quiet is the rest of both sides before a lap, after their work for the last one.
const quiet = 500 * time.Millisecond

// Run measures. It restores the size of the snapshot's pool, and ends all its sandboxes.
func Run(ctx context.Context, c Config) (_ []netnative.Figure, err error) {
	restore, err := measure.Pool(ctx, c.Client, c.Tag, c.Pool)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	all, err := c.forks(ctx)
	if err != nil {
		return nil, fmt.Errorf("forks: %w", err)
	}
	if c.HostPort == 0 {
		c.Say("streams and branches are not measured: no --host-port")
		return all, nil
	}
	for what, part := range map[string]func(context.Context) ([]netnative.Figure, error){
		"streams": c.streams, "branches": c.branches,
	} {
		c.Say("network: " + what)
		figures, err := part(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		all = append(all, figures...)
	}
	return all, nil
}

// ratio converts a comparison's figure: B beside A.
func ratio(f compare.Figure, unit string) netnative.Figure {
	return netnative.Figure{
		Name: f.Name, Unit: unit, Value: f.B, Floor: f.A, By: netnative.Ratio, Result: f.Ratio, Low: f.Low, High: f.High,
	}
}
