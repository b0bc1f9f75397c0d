package demo

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// ways is the number of children of the branched computation.
const ways = 3

// begin starts a computation in the background.
const begin = `import threading, time
demo_state = {'n': 0, 'way': 0}
def demo_work():
    while True:
        demo_state['n'] += 1
        time.sleep(0.002)
threading.Thread(target=demo_work, daemon=True).start()
time.sleep(0.2)
demo_state['n']`

// look returns the progress of the computation, now and a little later, and its direction.
const look = `demo_n = demo_state['n']
time.sleep(0.2)
f"{demo_n} {demo_state['n']} {demo_state['way']}"`

// Branched has the figures of branching a child during a computation.
type Branched struct {
	Ways        int     `json:"ways"`          // number of clones
	PauseMS     float64 `json:"pause_ms"`      // how long the source was stopped; 0 if not reported
	Rounds      int     `json:"rounds"`        // rounds of copying while the guest ran
	Bytes       int64   `json:"bytes_written"` // bytes of memory written to the new snapshot
	PausedBytes int64   `json:"paused_bytes"`  // part of Bytes copied during the pause
}

// branch starts a computation in a child and branches it live into three children. They continue
// from that instant, and each gets another direction.
func (r *Result) branch(ctx context.Context, c *client.Client, sb api.SandboxInfo) error {
	started, err := eval(ctx, c, sb, begin)
	if err != nil {
		return err
	}
	from, err := strconv.Atoi(started)
	if err != nil {
		return fmt.Errorf("the computation answered %q", started)
	}
	b, err := c.Branch(ctx, sb.ID, api.BranchRequest{N: ways})
	if err != nil {
		return err
	}
	defer c.DeleteSnapshot(context.WithoutCancel(ctx), b.Tag, client.DeleteOptions{Force: true})
	r.Branch = &Branched{Ways: ways, Rounds: b.Rounds, Bytes: b.BytesWritten, PausedBytes: b.PausedBytes}
	if b.PauseMS != nil {
		r.Branch.PauseMS = *b.PauseMS
	}
	defer func() {
		each(b.Children, func(_ int, k api.SandboxInfo) error { return c.Kill(context.WithoutCancel(ctx), k.ID) })
	}()
	for i, k := range b.Children {
		if k.Error != "" {
			r.fail("branched child %d: %s", i+1, k.Error)
			continue
		}
		if _, err := eval(ctx, c, k, fmt.Sprintf("demo_state.update(way=%d) or 1", i+1)); err != nil {
			return err
		}
		r.checkWay(ctx, c, k, fmt.Sprintf("branched child %d", i+1), from, i+1)
	}
	r.checkWay(ctx, c, sb, "the branched sandbox", from, 0)
	return nil
}

// checkWay returns an error unless a clone, or the source, continued its computation from the
// branch, in its own direction.
func (r *Result) checkWay(ctx context.Context, c *client.Client, sb api.SandboxInfo, who string, from, way int) {
	said, err := eval(ctx, c, sb, look)
	if err != nil {
		r.fail("%s: %v", who, err)
		return
	}
	f := strings.Fields(strings.Trim(said, "'"))
	if len(f) != 3 {
		r.fail("%s answered %q", who, said)
		return
	}
	n, _ := strconv.Atoi(f[0])
	later, _ := strconv.Atoi(f[1])
	switch {
	case n < from:
		r.fail("%s is at %d, behind the %d from before the branch", who, n, from)
	case later <= n:
		r.fail("%s stands still at %d", who, n)
	case f[2] != strconv.Itoa(way):
		r.fail("%s went way %s, want %d", who, f[2], way)
	}
}
