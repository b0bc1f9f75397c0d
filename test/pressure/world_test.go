package pressure

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/net/netd/nettest"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

func TestMain(m *testing.M) { nettest.MainOfDaemon(m, (*testing.M).Run) }

const parentTag = "parent"

// world is a daemon with limits and a network, and a snapshot to fork from.
type world struct {
	*harness.Daemon
	t *testing.T
}

func open(t *testing.T) *world {
	t.Helper()
	kvmtest.Require(t)
	dir, err := harness.TempDir("prs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d, err := harness.New(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	d.Measured = true // only guests' forks make snapshots here, and other suites compare them
	if err := d.WithNet(t); err != nil {
		t.Fatal(err)
	}
	if err := harness.PythonImage(t, d.Images()); err != nil {
		t.Fatal(err)
	}
	w := &world{Daemon: d, t: t}
	t.Cleanup(w.close)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = d.Client.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: parentTag, Image: "python-numpy"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// close ends the daemon, and checks for leftovers.
func (w *world) close() {
	if !w.Running() {
		return
	}
	if err := w.Finish(); err != nil {
		w.t.Error(err)
	}
	for _, pid := range w.NetProcesses() {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	if w.t.Failed() {
		w.t.Logf("the daemon's log:\n%s", w.Log())
	}
}

// fork makes children. With a limit of the tree, their guests may fork them.
func (w *world) fork(limits api.SandboxLimits, memoryMiB, n int) (ids []string) {
	w.t.Helper()
	req := api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, SandboxLimits: limits,
		Network: &api.NetworkPolicy{Allow: []string{"203.0.113.7"}}}
	if memoryMiB > 0 {
		req.MemoryLimitMiB, req.GuestFork = &memoryMiB, true
	}
	res, err := w.Client.Fork(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sb := range res.Failed() {
		w.t.Fatalf("child %d: %s", sb.Index, sb.Error)
	}
	for _, sb := range res.Sandboxes {
		ids = append(ids, sb.ID)
	}
	return ids
}

// listed returns all sandboxes with their usage.
func (w *world) listed() map[string]api.SandboxInfo {
	w.t.Helper()
	list, err := w.Client.ListSandboxes(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]api.SandboxInfo{}
	for _, sb := range list {
		out[sb.ID] = sb
	}
	return out
}

// times are the durations of evals, in order.
type times []time.Duration

func (t times) max() time.Duration { return t[len(t)-1] }

func (t times) String() string {
	at := func(part float64) time.Duration { return t[int(part*float64(len(t)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("%d evals, p50 %s, p99 %s, the slowest %s", len(t), at(0.5), at(0.99), at(1))
}

// sweep evaluates an expression in each sandbox, four in parallel.
func (w *world) sweep(ids []string) times {
	var all sync.WaitGroup
	took := make(times, len(ids))
	next := make(chan int)
	for range 4 {
		all.Go(func() {
			for i := range next {
				began := time.Now()
				r, err := w.Client.Eval(w.t.Context(), ids[i], api.EvalRequest{Code: "6 * 7", TimeoutSecs: (2 * answerWithin).Seconds()})
				took[i] = time.Since(began)
				if err != nil || r.Result == nil || *r.Result != "42" {
					w.t.Errorf("%s: %+v, %v", ids[i], r, err)
				}
			}
		})
	}
	for i := range ids {
		next <- i
	}
	close(next)
	all.Wait()
	slices.Sort(took)
	return took
}

// daemonMemory returns the anonymous memory of the daemon and forkd-net.
func (w *world) daemonMemory() (sum int64) {
	w.t.Helper()
	for _, pid := range append(w.NetProcesses(), w.PID()) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			w.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "RssAnon:")
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		sum += kib << 10
	}
	return sum
}

// troubleOf returns the errors from peaceful guests' kernels.
func (w *world) troubleOf(ids []string) (out []string) {
	for _, id := range ids {
		name := w.VMDir(id)
		name = name[strings.LastIndexByte(name, '/')+1:]
		for _, line := range w.Trouble() {
			if strings.HasPrefix(line, name+":") {
				out = append(out, id+": "+line)
			}
		}
	}
	return out
}
