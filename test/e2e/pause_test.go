package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

func (d *daemon) life() client.Life { return client.Life{Client: d.c} }

func (d *daemon) pause(id string) api.SandboxInfo {
	d.t.Helper()
	info, err := d.life().Pause(d.t.Context(), id, api.PauseRequest{})
	if err != nil {
		d.t.Fatalf("pause %s: %v", id, err)
	}
	if info.Status != api.SandboxPaused || info.PID != nil || info.PausedIn == "" {
		d.t.Errorf("paused it is %+v", info)
	}
	return info
}

func (d *daemon) resume(id string) api.SandboxInfo {
	d.t.Helper()
	info, err := d.life().Resume(d.t.Context(), id)
	if err != nil {
		d.t.Fatalf("resume %s: %v", id, err)
	}
	if info.Status != api.SandboxRunning || info.PID == nil {
		d.t.Errorf("resumed it is %+v", info)
	}
	return info
}

// A sandbox is paused in the middle of its work, and continues from there: after a moment, with
// another daemon, and after a boot of the host, with only the store left.
func TestPause(t *testing.T) {
	first, d := shared(t), secondDaemon(t) // a boot ends all VMs of its daemon
	if err := cloneStore(first, d); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.unchanged()
	n := 1
	sb := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, Env: map[string]string{"COLOUR": "red"}}).OK()[0]
	id := sb.ID
	d.eval(id, startCounting)
	d.remember(id, "of then")
	lasting := append(slices.Clone(lasting), bootID)
	same, seen := d.list(id, lasting...), d.list(id, fresh...)
	for _, c := range []struct {
		name    string
		between func()
	}{
		{"at once", func() {}},
		{"another daemon", func() { d.end(syscall.SIGKILL); d.start() }},
		{"after a boot", func() {
			d.end(syscall.SIGKILL)
			if err := os.RemoveAll(filepath.Join(d.Run, "vm")); err != nil {
				d.t.Fatal(err)
			}
			d.start()
		}},
	} {
		d.sub(c.name, func(t *testing.T) {
			ticks := d.ticks(id)
			broken := d.streamInto(id)
			before, err := d.c.Sandbox(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			d.pause(id)
			var e *client.Error
			if err := <-broken; !errors.As(err, &e) || e.Code != api.CodeGuestGone || !strings.Contains(err.Error(), "was paused") {
				t.Errorf("the stream ended with %v", err)
			}
			if syscall.Kill(*before.PID, 0) == nil {
				t.Errorf("process %d still runs", *before.PID)
			}
			_, err = d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}})
			wantError(t, err, api.CodeConflict, id, "paused")
			c.between()
			d.resume(id)
			if now := d.ticks(id); now < ticks || now > ticks+2000 {
				t.Errorf("it has counted to %d, to %d before", now, ticks)
			}
			d.counts(id)
			d.remembers(id, "of then")
			seen = d.sameButFresh(id, lasting, fresh, same, seen)
			d.tellsTheTime(id)
		})
	}
	res := d.branch(id, api.BranchRequest{Tag: "after", N: 1})
	d.remembers(res.Children[0].ID, "of then")
	d.kill(res.Children[0].ID)
	if err := d.c.DeleteSnapshot(t.Context(), "after", client.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	d.kill(id)
	eventually(t, "end of its pauses' snapshots", func() bool { // unused ones are collected in the background
		list, err := d.c.ListSnapshots(t.Context())
		return err == nil && !slices.ContainsFunc(list, func(s api.SnapshotInfo) bool { return s.Transient })
	})
}

// Many paused sandboxes get requests at the same time. Each resumes exactly once.
func TestTrafficResumesMany(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	n := 4
	if harness.Soaking() {
		n = 50
	}
	sbs := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n,
		SandboxLife: api.SandboxLife{AutoResume: true, AtEnd: api.AtEndPause}}).OK()
	for i, sb := range sbs {
		d.eval(sb.ID, fmt.Sprintf("mine = %d", i))
		d.pause(sb.ID)
	}
	var all sync.WaitGroup
	for _, sb := range sbs {
		for range 2 {
			all.Go(func() {
				r, err := d.c.Exec(t.Context(), sb.ID, api.ExecRequest{Args: []string{"hostname"}})
				if err != nil || strings.TrimSpace(r.Stdout) != sb.ID {
					t.Errorf("%s: %+v, %v", sb.ID, r, err)
				}
			})
		}
	}
	all.Wait()
	for i, sb := range sbs {
		if got := d.eval(sb.ID, "mine"); got != fmt.Sprint(i) {
			t.Errorf("%s has %q, want %d", sb.ID, got, i)
		}
		d.kill(sb.ID)
	}
}

// pauses is the number of pauses of one sandbox. In a soak it is large enough to reveal a leak.
func pauses() int {
	if harness.Soaking() {
		return 100
	}
	return 3
}

// A sandbox is paused and resumed repeatedly while it works.
func TestPausesInALoop(t *testing.T) {
	kvmtest.Soak(t) // short form: TestPause
	d := shared(t)
	d.unchanged()
	id := d.fork(1)[0].ID
	d.eval(id, startCounting)
	for range pauses() {
		ticks := d.ticks(id)
		d.pause(id)
		d.resume(id)
		if now := d.ticks(id); now < ticks {
			t.Fatalf("it has counted to %d, to %d before", now, ticks)
		}
	}
	d.kill(id)
}

// An unused sandbox is paused, and resumes on the next request. Another sandbox ends at its
// deadline.
func TestIdleSandboxesArePaused(t *testing.T) {
	d := shared(t)
	d.unchanged()
	one := func(l api.SandboxLife) string {
		n := 1
		return d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, SandboxLife: l}).OK()[0].ID
	}
	idle := one(api.SandboxLife{IdleSecs: 1, AtEnd: api.AtEndPause, AutoResume: true})
	dies := one(api.SandboxLife{TTLSecs: 2})
	eventually(t, "paused sandbox", func() bool {
		info, err := d.c.Sandbox(t.Context(), idle)
		return err == nil && info.Status == api.SandboxPaused
	})
	d.sh(idle, "true")
	eventually(t, "end of the other", func() bool {
		_, err := d.c.Sandbox(t.Context(), dies)
		return client.IsNotFound(err)
	})
	d.kill(idle)
}
