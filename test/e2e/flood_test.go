package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// startDialing makes a guest dial host ports endlessly, and send garbage to ports with an answer.
const startDialing = `
import collections, os, threading
dialed = 0
def dialing():
    global dialed
    waiting, garbage = collections.deque(), os.urandom(4096)
    while True:
        for port in range(1, 1101):
            s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
            s.setblocking(False)
            try:
                s.connect((2, port))
            except OSError:
                pass
            waiting.append(s)
            if len(waiting) > 500:
                old = waiting.popleft()
                try:
                    old.send(garbage)
                except OSError:
                    pass
                old.close()
            dialed += 1
            if dialed % 1100 == 0:
                time.sleep(0.01)
threading.Thread(target=dialing, daemon=True).start()
`

// flooders is the number of such guests. Each takes all available CPU time.
const flooders = 8

// Guests that dial host ports endlessly delay neither their branches nor the daemon nor each other,
// and have no leftovers.
func TestGuestsThatDialWithoutEnd(t *testing.T) {
	kvmtest.Soak(t) // emulated, it takes minutes; TestDialFloodDuringCaptures of internal/vm/vmm/live is its short form
	d := shared(t)
	innocent := d.oneSandbox()
	d.unchanged()
	files := openFilesOf(d.pid())
	sbs := d.fork(flooders)
	for _, sb := range sbs {
		d.eval(sb.ID, startDialing)
	}
	var wg sync.WaitGroup
	answers := make(chan struct{})
	wg.Go(func() { d.keepsAnswering(t, innocent, answers) })
	for i, sb := range sbs {
		ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
		tag := fmt.Sprintf("flooded-%d", i)
		began := time.Now()
		if _, err := d.c.Branch(ctx, sb.ID, api.BranchRequest{Tag: tag}); err != nil {
			t.Errorf("branch of %s after %s: %v", sb.ID, time.Since(began), err)
		}
		cancel()
		d.forget(tag)
	}
	for _, sb := range sbs {
		eventually(t, "dials in number", func() bool { return d.eval(sb.ID, "dialed > 500") == "True" })
	}
	close(answers)
	wg.Wait()
	for _, sb := range sbs {
		if err := d.c.Kill(t.Context(), sb.ID); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "files closed", func() bool { return openFilesOf(d.pid()) <= files+8 }) // some are HTTP connections
}

// keepsAnswering requests a list and runs a program in a sandbox, repeatedly until done.
func (d *daemon) keepsAnswering(t *testing.T, id string, done <-chan struct{}) {
	var slowest time.Duration
	for {
		began := time.Now()
		if _, err := d.c.ListSandboxes(t.Context()); err != nil {
			t.Error(err)
		}
		listed := time.Since(began)
		if _, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}, TimeoutSecs: patience.Seconds()}); err != nil {
			t.Errorf("a program in another sandbox: %v", err)
		}
		took := time.Since(began)
		slowest = max(slowest, took)
		if listed > patience/4 || took > patience {
			t.Errorf("a list took %s, and a program in another sandbox %s", listed, took-listed)
		}
		select {
		case <-done:
			t.Logf("a list and a program took %s at most", slowest)
			return
		default:
		}
	}
}

func openFilesOf(pid int) int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries)
}
