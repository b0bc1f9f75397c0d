package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// Limits of the pauses.
const (
	pausers      = 4 // workers
	wantedPauses = 8
	pausedGuests = 4
	soakGuests   = 100
	pauseTime    = 40 * time.Second
)

// counting makes a guest count, and write over memory and disk, until it ends.
const counting = `echo %s > /root/name
(i=0; while :; do i=$((i+1)); echo $i > /dev/shm/count; dd if=/dev/urandom of=/dev/shm/load bs=64k count=4 2>/dev/null
echo $i > /root/count; sleep 0.05; done) >/dev/null 2>&1 </dev/null &`

// pausing is the state that the workers share.
type pausing struct {
	t      *testing.T
	d      *harness.Daemon
	pauses atomic.Int64
	guests []*pausedGuest
}

// pausedGuest is one sandbox, used by one worker at a time.
type pausedGuest struct {
	id string

	mu    sync.Mutex // guards count, and excludes other workers
	count int        // last value that was read
}

// Busy sandboxes are paused and resumed repeatedly, several in parallel. A resume is an explicit
// call or follows a request to the sandbox. Each sandbox continues from its last state. The oracle
// compares the capture of each pause.
func TestPausesUnderLoad(t *testing.T) {
	kvmtest.Drawn(t)
	d := daemon(t)
	seed := kvmtest.Seed(t)
	t.Cleanup(func() { clean(t, d) })
	p := &pausing{t: t, d: d}
	n := pausedGuests
	if harness.Soaking() {
		n = soakGuests
	}
	p.populate(n)
	end := time.Now().Add(harness.Span(t, pauseTime))
	var all sync.WaitGroup
	for w := range pausers {
		random := kvmtest.Random(seed, uint64(200+w))
		all.Go(func() {
			for !t.Failed() && (time.Now().Before(end) || p.pauses.Load() == 0) {
				if !harness.Soaking() && p.pauses.Load() >= wantedPauses {
					return
				}
				if err := p.once(random); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	sound(t, d, nil)
	t.Logf("soak: pauses=%d", p.pauses.Load())
}

func (p *pausing) populate(n int) {
	p.t.Helper()
	const atOnce = 10
	for left := n; left > 0; left -= atOnce {
		some := min(left, atOnce)
		res, err := p.d.Client.Fork(p.t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &some,
			SandboxLife: api.SandboxLife{AtEnd: api.AtEndPause, AutoResume: true}})
		if err != nil || len(res.Failed()) > 0 {
			p.t.Fatalf("fork: %+v, %v", res.Failed(), err)
		}
		for _, sb := range res.OK() {
			p.d.Shell(p.t, sb.ID, fmt.Sprintf(counting, sb.ID))
			p.guests = append(p.guests, &pausedGuest{id: sb.ID})
		}
		if n > atOnce { // most are paused at any time; if all were busy, none would get enough CPU time
			for _, sb := range res.OK() {
				if _, err := p.life().Pause(p.t.Context(), sb.ID, api.PauseRequest{}); err != nil {
					p.t.Fatal(err)
				}
			}
		}
	}
}

func (p *pausing) life() client.Life { return client.Life{Client: p.d.Client} }

// once pauses a sandbox. It first resumes the sandbox if it is paused.
func (p *pausing) once(random *rand.Rand) error {
	g := p.guests[random.IntN(len(p.guests))]
	if !g.mu.TryLock() {
		return nil
	}
	defer g.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if random.IntN(2) == 0 {
		if _, err := p.life().Resume(ctx, g.id); err != nil {
			return fmt.Errorf("resume %s: %w", g.id, err)
		}
	}
	if err := g.look(ctx, p.d.Client); err != nil { // also resumes it
		return err
	}
	if _, err := p.life().Pause(ctx, g.id, api.PauseRequest{}); err != nil {
		return fmt.Errorf("pause %s: %w", g.id, err)
	}
	p.pauses.Add(1)
	if random.IntN(3) > 0 && !harness.Soaking() || random.IntN(8) == 0 {
		return g.look(ctx, p.d.Client)
	}
	return nil
}

// look reads a guest's name and count. The count must never decrease.
func (g *pausedGuest) look(ctx context.Context, c *client.Client) error {
	r, err := c.Exec(ctx, g.id, api.ExecRequest{Args: []string{"sh", "-c", "cat /root/name /dev/shm/count"},
		TimeoutSecs: patience.Seconds()})
	if err != nil {
		return fmt.Errorf("look at %s: %w", g.id, err)
	}
	words := strings.Fields(r.Stdout)
	if len(words) == 0 || words[0] != g.id {
		return fmt.Errorf("%s says that it is %q %s", g.id, r.Stdout, r.Stderr)
	}
	if len(words) < 2 { // the guest was rewriting the file
		return nil
	}
	count, err := strconv.Atoi(words[1])
	if err != nil || count < g.count {
		return fmt.Errorf("%s has counted to %q, to %d before", g.id, words[1], g.count)
	}
	g.count = count
	return nil
}
