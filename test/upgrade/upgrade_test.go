package upgrade

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

const (
	release   = "0.1.0"
	parentTag = "parent"
	prefix    = "up" // of the daemon's directory; short, because sockets are below it
)

// counting is a thread that stops at nothing but a frozen guest.
const counting = `
import threading, time, pathlib
ticks = [0]
def count():
    while True:
        ticks[0] += 1
        time.sleep(0.01)
threading.Thread(target=count, daemon=True).start()
pathlib.Path("/home/user/old").write_text("a file of the old release")
`

// guest is a sandbox made by the old release.
type guest struct {
	id  string
	pid int
}

// world is a daemon whose programs were replaced while it had sandboxes.
type world struct {
	*harness.Daemon
	t *testing.T

	runs, dies, forker, pausedByOld guest
	networked                       guest
	ticks                           int // of runs and of its branches' instant, before the upgrade
}

// VMs, paused sandboxes, snapshots and prepared shells of 0.1.0 go on under today's daemon.
func TestVMsOfTheOldRelease(t *testing.T) {
	kvmtest.Soak(t)
	kvmtest.Require(t)
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(end.String(), func(t *testing.T) {
			w := open(t)
			w.old()
			w.End(end)
			if err := w.Install(t, ""); err != nil {
				t.Fatal(err)
			}
			if err := w.Start(); err != nil {
				t.Fatal(err)
			}
			w.check()
		})
	}
}

func open(t *testing.T) *world {
	t.Helper()
	dir, err := harness.TempDir(prefix)
	if err != nil {
		t.Fatal(err)
	}
	d, err := harness.New(t, dir)
	if err == nil {
		err = errors.Join(d.Install(t, release), harness.PythonImageOf(t, d.Images(), release))
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Daemon: d, t: t}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.Log())
		}
		if err := d.Finish(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// sub runs one step of the test. Later steps run also after a failure.
func (w *world) sub(name string, step func(t *testing.T)) {
	outer := w.t
	outer.Run(name, func(t *testing.T) {
		w.t = t
		step(t)
	})
	w.t = outer
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) eval(id, code string) string {
	w.t.Helper()
	r, err := w.Client.Eval(w.t.Context(), id, api.EvalRequest{Code: code, TimeoutSecs: 120})
	w.must(err)
	switch {
	case r.Error != nil:
		w.t.Fatalf("%s: %q: %s", id, code, *r.Error)
	case r.Result == nil:
		return r.Stdout
	}
	return *r.Result
}

func (w *world) count(id string) int {
	w.t.Helper()
	n, err := strconv.Atoi(w.eval(id, "ticks[0]"))
	w.must(err)
	return n
}

// fork makes a sandbox whose guest counts.
func (w *world) fork(mine string, req api.CreateSandboxesRequest) guest {
	w.t.Helper()
	n := 1
	req.SnapshotTag, req.N = parentTag, &n
	res, err := w.Client.Fork(w.t.Context(), req)
	w.must(err)
	sb := res.Sandboxes[0]
	if sb.Error != "" || sb.PID == nil {
		w.t.Fatalf("forked %+v", sb)
	}
	w.eval(sb.ID, counting+"mine = "+strconv.Quote(mine))
	return guest{id: sb.ID, pid: *sb.PID}
}

// remembers checks that a guest is the given one, in its memory and on its disk, and still counts.
func (w *world) remembers(id, mine string, least int) {
	w.t.Helper()
	got := w.eval(id, `f"{mine}: {pathlib.Path('/home/user/old').read_text()}"`)
	if want := mine + ": a file of the old release"; strings.Trim(got, `'"`) != want {
		w.t.Errorf("%s answers %q, want %q", id, got, want)
	}
	was := w.count(id)
	if was < least {
		w.t.Errorf("%s has counted to %d, and to %d before", id, was, least)
	}
	w.eval(id, "time.sleep(0.2)")
	if now := w.count(id); now <= was {
		w.t.Errorf("%s counts no more: %d, then %d", id, was, now)
	}
}

// verifies checks a snapshot's content. Its digests are made in the background.
func (w *world) verifies(tag string) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		v, err := w.Client.VerifySnapshot(w.t.Context(), tag, nil)
		var e *client.Error
		if errors.As(err, &e) && e.Code == api.CodeConflict && time.Now().Before(end) {
			continue
		}
		if err != nil || !v.OK {
			w.t.Errorf("%s: %+v, %v", tag, v, err)
		}
		return
	}
}

// old lets the old release make one of each.
func (w *world) old() {
	t, c := w.t, w.Client
	t.Helper()
	v, err := c.Version(t.Context())
	w.must(err)
	if v.Version != release {
		t.Fatalf("the old daemon says it is %q", v.Version)
	}
	_, err = c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: parentTag, Image: "python-numpy", Warm: "import time"}, nil)
	w.must(err)
	w.must(c.SetPool(t.Context(), parentTag, 2))
	w.runs = w.fork("runs", api.CreateSandboxesRequest{Env: map[string]string{"COLOUR": "red"}})
	w.dies = w.fork("dies", api.CreateSandboxesRequest{})
	w.forker = w.fork("forker", api.CreateSandboxesRequest{GuestFork: true})
	w.pausedByOld = w.fork("paused", api.CreateSandboxesRequest{})
	w.networked = w.fork("networked", api.CreateSandboxesRequest{Network: &api.NetworkPolicy{Allow: []string{"example.com"}}})
	w.ticks = w.count(w.runs.id)
	for tag, mode := range map[string]api.BranchMode{"old-full": api.BranchFull, "old-live": api.BranchLive} {
		_, err := c.Branch(t.Context(), w.runs.id, api.BranchRequest{Tag: tag, Mode: mode})
		w.must(err)
	}
	w.eval(w.runs.id, "mine = 'runs later'")
	_, err = client.Life{Client: c}.Pause(t.Context(), w.pausedByOld.id, api.PauseRequest{})
	w.must(err)
}

// check lets today's daemon use all of it.
func (w *world) check() {
	w.sub("all are adopted", w.adopted)
	w.sub("commands and environment", func(t *testing.T) {
		w.remembers(w.runs.id, "runs later", w.ticks)
		if got := w.Shell(t, w.runs.id, "echo $COLOUR"); got != "red\n" {
			t.Errorf("the environment has COLOUR %q", got)
		}
	})
	w.sub("branches of a VM of the old release", w.branches)
	w.sub("snapshots of the old release", w.snapshots)
	w.sub("their agent", w.oldAgent)
	w.sub("pause and resume", w.pauses)
	w.sub("a fork by the guest", w.forks)
	w.sub("rollback", func(t *testing.T) {
		_, err := w.Client.Rollback(t.Context(), w.runs.id, "old-live")
		w.must(err)
		w.remembers(w.runs.id, "runs", w.ticks)
	})
	w.sub("network", w.network)
	w.sub("end", func(t *testing.T) {
		w.must(w.Kill(w.dies.id))
		if syscall.Kill(w.dies.pid, 0) == nil {
			t.Errorf("process %d still runs", w.dies.pid)
		}
	})
	w.sub("receipts", func(t *testing.T) {
		for _, id := range []string{w.runs.id, w.pausedByOld.id, w.dies.id} {
			r, err := w.Client.SandboxReceipt(t.Context(), id)
			if err != nil || r.Sandbox != id {
				t.Errorf("%s: %+v, %v", id, r, err)
			}
		}
	})
}

func (w *world) adopted(t *testing.T) {
	for _, g := range []guest{w.runs, w.dies, w.forker, w.networked} {
		sb, err := w.Client.Sandbox(t.Context(), g.id)
		w.must(err)
		if sb.Status != api.SandboxRunning || sb.PID == nil || *sb.PID != g.pid {
			t.Errorf("%s was process %d and is %+v", g.id, g.pid, sb)
		}
	}
	sb, err := w.Client.Sandbox(t.Context(), w.pausedByOld.id)
	if err != nil || sb.Status != api.SandboxPaused {
		t.Errorf("the paused sandbox: %+v, %v", sb, err)
	}
}

func (w *world) branches(t *testing.T) {
	for _, mode := range []api.BranchMode{api.BranchLive, api.BranchDiff, api.BranchFull} {
		tag := "new-" + string(mode)
		res, err := w.Client.Branch(t.Context(), w.runs.id, api.BranchRequest{Tag: tag, Mode: mode, N: 2})
		w.must(err)
		for _, sb := range res.Children {
			if sb.Error != "" {
				t.Fatalf("%s: child %d: %s", mode, sb.Index, sb.Error)
			}
			w.remembers(sb.ID, "runs later", w.ticks)
			w.must(w.Kill(sb.ID))
		}
		w.verifies(tag)
	}
}

func (w *world) snapshots(t *testing.T) {
	for _, tag := range []string{parentTag, "old-full", "old-live"} {
		w.verifies(tag)
	}
	for _, sb := range slices.Concat(w.Fork(t, "old-full", 2), w.Fork(t, "old-live", 2)) {
		w.remembers(sb.ID, "runs", w.ticks)
		w.must(w.Kill(sb.ID))
	}
	for _, sb := range w.Fork(t, parentTag, 4) { // two of the old release's prepared shells, if they were kept
		if got := w.eval(sb.ID, "6 * 7"); got != "42" {
			t.Errorf("%s answers %q", sb.ID, got)
		}
		w.must(w.Kill(sb.ID))
	}
	info, err := w.Client.CompactSnapshot(t.Context(), "old-live", "compacted", nil)
	w.must(err)
	for _, sb := range w.Fork(t, info.Tag, 1) {
		w.remembers(sb.ID, "runs", w.ticks)
		w.must(w.Kill(sb.ID))
	}
}

// oldAgent checks that a snapshot of the old release, whose agent cannot be replaced, refuses newer
// features with a hint and keeps working.
func (w *world) oldAgent(t *testing.T) {
	one := 1
	res, err := w.Client.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &one,
		Services: []api.NamedService{{Name: "web", ServiceSpec: api.ServiceSpec{Command: []string{"true"}}}}})
	var told *client.Error
	if !errors.As(err, &told) || told.Reason != api.ReasonAgentOld || !strings.Contains(err.Error(), "make the snapshot again") {
		t.Errorf("a fork with services: %d children, %v", len(res.OK()), err)
	}
	for _, sb := range w.Fork(t, parentTag, 1) {
		if got := w.eval(sb.ID, "6 * 7"); got != "42" {
			t.Errorf("%s answers %q", sb.ID, got)
		}
		w.must(w.Kill(sb.ID))
	}
}

func (w *world) pauses(t *testing.T) {
	life := client.Life{Client: w.Client}
	_, err := life.Resume(t.Context(), w.pausedByOld.id)
	w.must(err)
	w.remembers(w.pausedByOld.id, "paused", 0)
	for _, g := range []guest{w.pausedByOld, w.runs} {
		ticks := w.count(g.id)
		_, err := life.Pause(t.Context(), g.id, api.PauseRequest{})
		w.must(err)
		_, err = life.Resume(t.Context(), g.id)
		w.must(err)
		if now := w.count(g.id); now < ticks {
			t.Errorf("%s has counted to %d, and to %d before", g.id, now, ticks)
		}
	}
}

func (w *world) forks(t *testing.T) {
	out := strings.Fields(w.Shell(t, w.forker.id, "forkd-fork 2")) // 0, and the children
	if len(out) != 3 {
		t.Fatalf("forkd-fork printed %q", out)
	}
	for _, id := range out[1:] {
		w.remembers(id, "forker", 0)
		w.must(w.Kill(id))
	}
}

func (w *world) network(t *testing.T) {
	n, err := w.Client.Network(t.Context(), w.networked.id)
	w.must(err)
	if fmt.Sprint(n.Network.Allow) != "[example.com]" {
		t.Errorf("its policy is now %+v", n.Network)
	}
	narrow := api.NetworkPolicy{Allow: []string{"example.org"}}
	n, err = w.Client.SetNetwork(t.Context(), w.networked.id, api.SetNetworkRequest{Network: &narrow})
	w.must(err)
	if fmt.Sprint(n.Network.Allow) != "[example.org]" {
		t.Errorf("the new policy is %+v", n.Network)
	}
	res, err := w.Client.Branch(t.Context(), w.networked.id, api.BranchRequest{Tag: "networked", N: 1})
	w.must(err)
	for _, sb := range res.Children {
		w.remembers(sb.ID, "networked", 0)
	}
}
