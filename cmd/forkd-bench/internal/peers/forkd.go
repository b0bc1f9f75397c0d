package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/floor"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// ForkdConfig describes a fork by a daemon, for a row beside the rows of the peers.
type ForkdConfig struct {
	Client *client.Client
	Floors floor.Floors // of the daemon's host
	Tag    string
	N      int
	Pool   int // number of ready shells
}

// Forkd forks n children, requests a first answer from each as soon as it is ready, and ends them.
// A guest counts as started only once it has its own identity.
func Forkd(ctx context.Context, c ForkdConfig) (r Row, err error) {
	r = Row{Peer: fmt.Sprintf("forkd fork, %d shells", c.Pool), N: c.N}
	restore, err := measure.Pool(ctx, c.Client, c.Tag, c.Pool)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	if err := measure.AwaitPool(ctx, c.Client, c.Tag, c.Pool); err != nil {
		return r, err
	}
	before, err := c.host(ctx)
	if err != nil {
		return r, err
	}
	var mu sync.Mutex // guards the times
	var started, answered []float64
	var asked sync.WaitGroup
	began := time.Now()
	res, err := measure.ForkSome(ctx, c.Client, c.Tag, c.N, func(sb api.SandboxInfo) {
		if sb.Error != "" {
			return
		}
		ready := measure.Millis(time.Since(began))
		asked.Go(func() {
			got, err := c.Client.Eval(ctx, sb.ID, api.EvalRequest{Code: question})
			if err != nil || got.Result == nil || *got.Result != answer {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			started, answered = append(started, ready), append(answered, measure.Millis(time.Since(began)))
		})
	})
	asked.Wait()
	children := res.OK()
	defer func() { err = errors.Join(err, measure.Kill(ctx, c.Client, children)) }()
	if err != nil {
		return r, err
	}
	if r.OK = len(answered); r.OK == 0 {
		r.Reason = "no child answered"
		return r, nil
	}
	after, err := c.host(ctx)
	if err != nil {
		return r, err
	}
	r.StartedP50MS, r.StartedMS = measure.Median(started), slices.Max(started)
	r.AnsweredP50MS, r.AnsweredMS = measure.Median(answered), slices.Max(answered)
	r.MemAvailableDeltaKiB = (before.MemAvailableKiB - after.MemAvailableKiB) / int64(len(children))
	for _, sb := range children {
		use, err := c.Client.Memory(ctx, sb.ID)
		if err != nil {
			return r, err
		}
		r.PSSKiB += use.PSSKiB / int64(len(children))
	}
	return r, nil
}

func (c ForkdConfig) host(ctx context.Context) (floor.Host, error) {
	if !c.Floors.Known() {
		return floor.Host{}, nil
	}
	return c.Floors.Host(ctx)
}
