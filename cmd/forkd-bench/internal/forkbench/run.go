package forkbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/floor"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/usage"
)

// Config holds the parameters of the measurement.
type Config struct {
	Client *client.Client
	Floors floor.Floors // if unknown, floor figures are left out
	Tag    string
	N      int // children
	Pool   int // shells to have ready before each fork; -1 leaves the pool unchanged
	Rounds int
	// Say receives progress messages. May be nil.
	Say func(string)
}

// round holds the results of one floor and one fork.
type round struct {
	n, ok, pool              int
	floor, armed             float64 // milliseconds
	readyWall                float64
	ready                    []float64  // sorted, one per ready child
	answered                 []float64  // sorted, from another fork: one per child that answered an eval
	toReady, toAnswer        usage.Mean // usage of the children of these two forks
	childArmed               []float64  // one per ready child, by the daemon's clock
	one                      single     // of forks of one child
	eval, evalDaemon         []float64  // sorted; evalDaemon is without the guest
	vmmAnon, guestDirty, pss float64    // KiB, means per child
	memDelta                 float64
}

// single holds the figures of forks of one child: one fork without requests to the child, and one
// with an eval.
type single struct {
	times
	toReady, toAnswer usage.Mean
}

// Run measures. It restores the size of the snapshot's pool, and ends all its children.
func Run(ctx context.Context, c Config) (_ Figures, err error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	of, err := c.Client.Snapshot(ctx, c.Tag)
	if err != nil {
		return Figures{}, err
	}
	if c.Pool >= 0 {
		restore, failed := measure.Pool(ctx, c.Client, c.Tag, c.Pool)
		if failed != nil {
			return Figures{}, failed
		}
		defer func() { err = errors.Join(err, restore()) }()
	}
	var rounds []round
	for i := range c.Rounds {
		c.Say(fmt.Sprintf("round %d of %d", i+1, c.Rounds))
		r, err := c.round(ctx, of)
		if err == nil && warm(of) {
			r.answered, r.toAnswer, err = c.answers(ctx, c.N)
		}
		if err == nil {
			err = c.single(ctx, &r.one)
		}
		if err == nil && warm(of) {
			r.one.answered, r.one.toAnswer, err = c.answers(ctx, 1)
		}
		if err != nil {
			return Figures{}, fmt.Errorf("round %d: %w", i+1, err)
		}
		rounds = append(rounds, r)
	}
	return summarise(rounds), nil
}

// warm reports whether an eval runs in an interpreter started before.
func warm(of api.SnapshotDetail) bool { return slices.Contains(of.Languages, "python") }

func (c Config) round(ctx context.Context, of api.SnapshotDetail) (r round, err error) {
	r.n = c.N
	// Both are measured with the pool full. Making shells in the background would slow down either.
	if err := c.awaitPool(ctx); err != nil {
		return r, err
	}
	before, err := c.floor(ctx, of, &r)
	if err != nil {
		return r, err
	}
	used, err := c.use(ctx)
	if err != nil {
		return r, err
	}
	began := time.Now()
	res, err := measure.ForkSome(ctx, c.Client, c.Tag, c.N, func(sb api.SandboxInfo) {
		if sb.Error == "" {
			r.ready = append(r.ready, measure.Millis(time.Since(began)))
			r.childArmed = append(r.childArmed, armed(sb))
		}
	})
	if err != nil {
		return r, err
	}
	children := res.OK()
	if failed := res.Failed(); len(failed) > 0 {
		c.Say(fmt.Sprintf("%d of %d children could not be forked: %s", len(failed), c.N, failed[0].Error))
	}
	defer func() { err = errors.Join(err, measure.Kill(ctx, c.Client, children)) }()
	r.pool, r.armed = res.PoolReady, measure.Millis(res.ArmedWall)
	r.readyWall = measure.Millis(time.Since(began))
	if r.toReady, err = used(children); err != nil {
		return r, err
	}
	r.ok = c.ping(ctx, children)
	if c.Floors.Known() {
		after, err := c.Floors.Host(ctx)
		if err != nil {
			return r, err
		}
		r.memDelta = float64(before.MemAvailableKiB-after.MemAvailableKiB) / float64(max(1, len(children)))
	}
	if err := c.memory(ctx, children, &r); err != nil {
		return r, err
	}
	if !warm(of) {
		return r, nil
	}
	return r, c.eval(ctx, children, &r)
}

// floor measures the floor, and reads the state of the host before the fork.
func (c Config) floor(ctx context.Context, of api.SnapshotDetail, r *round) (before floor.Host, err error) {
	if !c.Floors.Known() {
		return before, nil
	}
	if r.floor, err = c.Floors.VMs(ctx, floor.StoreDir(of.Dir), c.N, of.MemoryMiB); err != nil {
		return before, err
	}
	if err := measure.Pause(ctx, time.Second); err != nil { // the kernel still frees the floor's VMs
		return before, err
	}
	return c.Floors.Host(ctx)
}

// eval runs evals in some of the children, one after another: it measures the cost of an eval, not
// the throughput of the host. It leaves out the first eval of each child, in which the guest
// touches pages that it still shares with its siblings.
func (c Config) eval(ctx context.Context, children []api.SandboxInfo, r *round) error {
	const perChild = 5
	for i := range min(sample, len(children)) {
		id := children[i*len(children)/min(sample, len(children))].ID
		for turn := range 1 + perChild {
			res, err := c.Client.Eval(ctx, id, api.EvalRequest{Code: "1 + 1", Measure: true})
			if err != nil {
				return err
			}
			if turn > 0 {
				r.eval = append(r.eval, res.TookMS)
				r.evalDaemon = append(r.evalDaemon, res.TookMS-res.GuestMS)
			}
		}
	}
	slices.Sort(r.eval)
	slices.Sort(r.evalDaemon)
	return nil
}

// ping sends a ping to every child, and returns the number of answers.
func (c Config) ping(ctx context.Context, children []api.SandboxInfo) int {
	var alive atomic.Int64
	each(len(children), func(i int) {
		if _, err := c.Client.Ping(ctx, children[i].ID); err == nil {
			alive.Add(1)
		}
	})
	return int(alive.Load())
}

// answers forks n children once more and runs an eval in each as soon as it is ready. It returns
// the sorted times from the fork's request to each answer, and the usage until all had answered.
func (c Config) answers(ctx context.Context, n int) (times []float64, mean usage.Mean, err error) {
	if err := c.awaitPool(ctx); err != nil {
		return nil, mean, err
	}
	used, err := c.use(ctx)
	if err != nil {
		return nil, mean, err
	}
	var mu sync.Mutex // guards times
	var asked sync.WaitGroup
	began := time.Now()
	res, err := measure.ForkSome(ctx, c.Client, c.Tag, n, func(sb api.SandboxInfo) {
		if sb.Error != "" {
			return
		}
		asked.Go(func() {
			if _, err := c.Client.Eval(ctx, sb.ID, api.EvalRequest{Code: "1 + 1"}); err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, measure.Millis(time.Since(began)))
		})
	})
	asked.Wait()
	defer func() { err = errors.Join(err, measure.Kill(ctx, c.Client, res.OK())) }()
	if err != nil {
		return nil, mean, err
	}
	slices.Sort(times)
	mean, err = used(res.OK())
	return times, mean, err
}

// single forks one child and sends it no request.
func (c Config) single(ctx context.Context, one *single) (err error) {
	if err := c.awaitPool(ctx); err != nil {
		return err
	}
	used, err := c.use(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	res, err := measure.ForkSome(ctx, c.Client, c.Tag, 1, func(sb api.SandboxInfo) {
		if sb.Error == "" {
			one.ready, one.armed = append(one.ready, measure.Millis(time.Since(began))), append(one.armed, armed(sb))
		}
	})
	defer func() { err = errors.Join(err, measure.Kill(ctx, c.Client, res.OK())) }()
	if err == nil {
		one.toReady, err = used(res.OK())
	}
	return err
}

// use starts to count the usage of children forked from now on, until the call of used. Earlier
// usage of their shells is not included. If the host is unknown, it counts no usage.
func (c Config) use(ctx context.Context) (used func([]api.SandboxInfo) (usage.Mean, error), err error) {
	if !c.Floors.Known() {
		return func([]api.SandboxInfo) (usage.Mean, error) { return usage.Mean{}, nil }, nil
	}
	before, err := c.Floors.VMMs(ctx)
	return func(children []api.SandboxInfo) (usage.Mean, error) {
		after, err := c.Floors.VMMs(ctx)
		var pids []int
		for _, sb := range children {
			if sb.PID != nil {
				pids = append(pids, *sb.PID)
			}
		}
		return usage.Between(before, after, pids), err
	}, err
}

// armed returns the time when a child reached its start gate, by the daemon's clock.
func armed(sb api.SandboxInfo) float64 {
	if sb.Timings == nil {
		return 0
	}
	return sb.Timings.ArmedMS
}

// sample is the number of children whose memory is read. The kernel walks page tables for each.
const sample = 20

func (c Config) memory(ctx context.Context, children []api.SandboxInfo, r *round) error {
	if len(children) == 0 {
		return nil
	}
	n := min(sample, len(children))
	for i := range n {
		use, err := c.Client.Memory(ctx, children[i*len(children)/n].ID)
		if err != nil {
			return err
		}
		r.vmmAnon += float64(use.VMMAnonKiB) / float64(n)
		r.guestDirty += float64(use.GuestDirtyKiB) / float64(n)
		r.pss += float64(use.PSSKiB) / float64(n)
	}
	return nil
}

// awaitPool waits until the wanted shells are ready, and a second more for the cleanup of the last
// round's children.
func (c Config) awaitPool(ctx context.Context) error {
	for {
		p, err := poolOf(ctx, c)
		if err != nil {
			return err
		}
		if c.Pool < 0 || p.Ready >= c.Pool {
			break
		}
		c.Say(fmt.Sprintf("waiting for %d shells, %d are ready", c.Pool, p.Ready))
		if err := measure.Pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	return measure.Pause(ctx, time.Second)
}

func poolOf(ctx context.Context, c Config) (api.Pool, error) {
	pools, err := c.Client.Pools(ctx)
	if err != nil {
		return api.Pool{}, err
	}
	for _, p := range pools {
		if p.Tag == c.Tag {
			return p, nil
		}
	}
	return api.Pool{}, nil
}

// each calls do for 0 to n-1, some calls in parallel.
func each(n int, do func(i int)) {
	const atOnce = 16
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			do(i)
		})
	}
	wg.Wait()
}
