package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// daemonsIn returns the processes of the daemon's program that are not init.
func (d *daemon) daemonsIn() (out []int) {
	d.t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.TrimSuffix(to, " (deleted)") == d.forkd() {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			out = append(out, pid)
		}
	}
	return out
}

// In a container, sandboxes outlive a killed daemon and its restart, and end with the container.
func TestAContainer(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	if id := theWorld.sandboxID; id != "" { // it would not be in the container
		d.kill(id)
		theWorld.sandboxOnce, theWorld.sandboxID = sync.Once{}, ""
	}
	d.end(syscall.SIGTERM)
	d.Container = true
	t.Cleanup(func() {
		d.Container = false
		if d.Running() {
			d.end(syscall.SIGTERM)
		}
		d.start()
	})
	d.start()
	sbs := d.fork(2)
	d.eval(sbs[0].ID, "colour = 'kept'")
	survive := func(how string) {
		t.Helper()
		eventually(t, "next daemon "+how, func() bool { return d.c.Health(t.Context()) == nil })
		d.alive(sbs...)
		if got := d.eval(sbs[0].ID, "colour"); got != "'kept'" {
			t.Errorf("%s: the interpreter says %q", how, got)
		}
	}

	before := d.daemonsIn()
	if len(before) != 1 {
		t.Fatalf("daemons: %v", before)
	}
	d.KillProcess(before[0])
	next := func() bool { now := d.daemonsIn(); return len(now) == 1 && !slices.Equal(now, before) }
	eventually(t, "next daemon", next)
	survive("after kill -9")

	before = d.daemonsIn()
	if err := syscall.Kill(d.pid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "next daemon", next)
	survive("after SIGHUP")
	d.alive(d.fork(1)...)

	// A drain for the end of the container is over in the next one.
	if code, _, stderr := d.cli("drain", "--until-restart", "--timeout", "5m"); code != 0 {
		t.Fatalf("drain: %d %s", code, stderr)
	}
	if left := d.processes(); len(left) != 0 {
		t.Errorf("VMs after the drain: %v", left)
	}
	if state := d.end(syscall.SIGTERM); state.ExitCode() != 0 {
		t.Errorf("init ended with %s", state)
	}
	d.start()
	if _, err := (client.Life{Client: d.c}).Resume(t.Context(), sbs[0].ID); err != nil {
		t.Fatal(err)
	}
	if got := d.eval(sbs[0].ID, "colour"); got != "'kept'" {
		t.Errorf("in the next container the interpreter says %q", got)
	}

	// The end of a container without a drain ends the VMs. The next one reports them.
	d.end(syscall.SIGKILL)
	eventually(t, "end of the VMs", func() bool { return len(d.processes()) == 0 })
	d.start()
	info, err := d.c.Sandbox(t.Context(), sbs[0].ID)
	if err != nil || info.Status != api.SandboxFailed {
		t.Errorf("%+v, %v", info, err)
	}
}
