package oracle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// Limits of the churn.
const (
	churners      = 4
	churnTime     = 25 * time.Second
	mostSandboxes = 8
	mostBetween   = 12 // operations between two restarts
	cutOff        = 1  // the exit code of a daemon with requests that lasted longer than 10 s after SIGTERM
)

// Forks, branches, programs, rollbacks and kills run in parallel, while the daemon is repeatedly
// stopped or killed and started. No request is refused without a valid reason, the oracle finds no
// mismatch, everything listed at the end works, and there are no leftovers after its deletion.
func TestChurn(t *testing.T) {
	kvmtest.Soak(t)
	d := daemon(t)
	seed := kvmtest.Seed(t)
	c := &churn{t: t, d: d, did: map[string]int{}, killed: map[string]bool{}}
	t.Cleanup(func() { clean(t, d) })
	noHangs(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Span(t, churnTime))
	defer cancel()
	var all sync.WaitGroup
	for i := range churners {
		random := kvmtest.Random(seed, uint64(100+i))
		all.Go(func() {
			for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
				c.act(ctx, random, fmt.Sprintf("x%d-%d", i, n))
			}
		})
	}
	restarts := c.restart(ctx, kvmtest.Random(seed, 99))
	all.Wait()
	c.whole()
	t.Logf("%d restarts of the daemon; done: %v; refused as they may be: %d", restarts, c.did, c.refused.Load())
	if restarts == 0 || c.did["branch"]+c.did["fork"] == 0 {
		t.Errorf("too little was done")
	}
}

// churn is the state that the workers share.
type churn struct {
	t       *testing.T
	d       *harness.Daemon
	epoch   atomic.Int64 // odd while the daemon is down
	refused atomic.Int64

	mu  sync.Mutex // guards the fields below
	did map[string]int
	// killed holds the sandboxes that a worker has tried to kill. If the daemon ends during a kill,
	// the next one finds a sandbox without its VM, and lists it as failed.
	killed map[string]bool
}

// restart ends and starts the daemon until ctx ends, and leaves it running.
func (c *churn) restart(ctx context.Context, random *rand.Rand) (n int) {
	for {
		if !c.progress(ctx, 1+random.IntN(mostBetween)) {
			return n
		}
		sig := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[n%2]
		c.epoch.Add(1)
		state := c.d.End(sig)
		if code := state.ExitCode(); sig == syscall.SIGTERM && code != 0 && code != cutOff {
			c.t.Errorf("the daemon ended with %s:\n%s", state, c.d.Log())
		}
		if err := c.d.Start(); err != nil {
			c.t.Error(err)
			return n
		}
		c.epoch.Add(1)
		n++
	}
}

// progress waits until the given number of further operations are done. On a slow machine a daemon
// that is ended every few seconds completes none. It returns false when ctx has ended.
func (c *churn) progress(ctx context.Context, more int) bool {
	for wanted := c.done() + more; c.done() < wanted; {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true
}

func (c *churn) done() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.did {
		n += k
	}
	return n
}

// act performs one operation.
func (c *churn) act(ctx context.Context, random *rand.Rand, tag string) {
	before := c.epoch.Load()
	what, err := c.try(ctx, random, tag)
	switch {
	case err == nil:
		c.mu.Lock()
		c.did[what]++
		c.mu.Unlock()
	case ctx.Err() != nil: // the end of the test came in between
	case c.mayBe(err, before):
		c.refused.Add(1)
		time.Sleep(10 * time.Millisecond) // elapses: there may be no daemon to ask
	default:
		c.t.Errorf("%s: %v", what, err)
	}
}

// mayBe reports whether an error is expected: another worker was faster, or the daemon was down.
func (c *churn) mayBe(err error, before int64) bool {
	if down := before%2 == 1 || c.epoch.Load() != before; down {
		return !strings.Contains(err.Error(), "oracle")
	}
	return slices.Contains([]api.Code{api.CodeNotFound, api.CodeConflict, api.CodeBusy, api.CodeGuestGone}, client.CodeOf(err))
}

// try chooses an operation at random, and performs it.
func (c *churn) try(ctx context.Context, random *rand.Rand, tag string) (string, error) {
	sbs, err := c.d.Client.ListSandboxes(ctx)
	if err != nil {
		return "list", err
	}
	n := random.IntN(100)
	if len(sbs) == 0 || n < 20 && len(sbs) < mostSandboxes {
		return "fork", c.fork(ctx, random)
	}
	sb := sbs[random.IntN(len(sbs))]
	switch {
	case n < 50:
		return "branch", c.branch(ctx, random, sb.ID, tag)
	case n < 70:
		r, err := c.d.Client.Exec(ctx, sb.ID, api.ExecRequest{Args: []string{"sh", "-c", "dd if=/dev/urandom of=/dev/shm/churn bs=64k count=8 2>/dev/null; echo done > /root/churn"}})
		if err == nil && (r.ExitCode != 0 || r.TimedOut) {
			err = fmt.Errorf("a program in %s: %+v", sb.ID, r)
		}
		return "exec", err
	case n < 80:
		_, err := c.d.Client.Rollback(ctx, sb.ID, sb.SnapshotTag)
		return "rollback", err
	case n < 85 && sb.PID != nil:
		c.tryKill(sb.ID)
		c.d.KillProcess(*sb.PID)
		return "kill -9", nil
	case n < 88:
		_, err := client.Life{Client: c.d.Client}.Pause(ctx, sb.ID, api.PauseRequest{})
		if err == nil {
			_, err = client.Life{Client: c.d.Client}.Resume(ctx, sb.ID)
		}
		return "pause", err
	case n < 92 || len(sbs) >= mostSandboxes:
		c.tryKill(sb.ID)
		return "kill", c.d.Kill(sb.ID)
	}
	return "delete", c.delete(ctx, random)
}

// tryKill records that a sandbox is about to be killed.
func (c *churn) tryKill(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed[id] = true
}

func (c *churn) fork(ctx context.Context, random *rand.Rand) error {
	tags, err := c.d.Client.ListSnapshots(ctx)
	if err != nil {
		return err
	}
	n := 1 + random.IntN(2)
	res, err := c.d.Client.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: tags[random.IntN(len(tags))].Tag, N: &n})
	if err != nil {
		return err
	}
	for _, sb := range res.Failed() {
		err = errors.Join(err, fmt.Errorf("child %d: %s", sb.Index, sb.Error))
	}
	return err
}

func (c *churn) branch(ctx context.Context, random *rand.Rand, id, tag string) error {
	req := api.BranchRequest{
		Tag: tag, Mode: []api.BranchMode{api.BranchLive, api.BranchDiff, api.BranchFull}[random.IntN(3)], MaxPauseMS: limits[random.IntN(len(limits))],
	}
	if random.IntN(2) == 0 {
		req.Wait = new(bool)
	}
	_, err := c.d.Client.Branch(ctx, id, req)
	return err
}

// delete deletes a random unused snapshot.
func (c *churn) delete(ctx context.Context, random *rand.Rand) error {
	tags, err := c.d.Client.ListSnapshots(ctx)
	if err != nil {
		return err
	}
	s := tags[random.IntN(len(tags))]
	if s.Tag == parentTag {
		return nil
	}
	return c.d.Client.DeleteSnapshot(ctx, s.Tag, client.DeleteOptions{})
}

// whole checks everything that is listed after the churn has ended.
func (c *churn) whole() {
	c.t.Helper()
	sound(c.t, c.d, c.killed)
	sbs, err := c.d.Client.ListSandboxes(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, sb := range sbs {
		if sb.Status == api.SandboxRunning {
			c.d.Shell(c.t, sb.ID, "true")
		}
	}
	tags, err := c.d.Client.ListSnapshots(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, s := range tags {
		if s.Status == api.SnapshotReady {
			continue
		}
		if s.Status != api.SnapshotWriting || strings.Contains(fmt.Sprint(s.Warning), "oracle") {
			c.t.Errorf("snapshot %s is %s: %v", s.Tag, s.Status, s.Warning)
		}
	}
	for range min(3, len(tags)) { // some of the snapshots made during the churn
		s := tags[rand.IntN(len(tags))]
		sb := c.d.Fork(c.t, s.Tag, 1)[0]
		c.d.Shell(c.t, sb.ID, "true")
		if err := c.d.Kill(sb.ID); err != nil {
			c.t.Error(err)
		}
	}
}
