package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// shortHost holds simulated figures on a host's memory, as seen by one daemon only.
type shortHost struct {
	t   *testing.T
	dir string
}

// start starts the daemon in a separate mount namespace, where the test provides the kernel's
// figures.
func (h shortHost) start(d *daemon) {
	h.t.Helper()
	all, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		h.t.Fatal(err)
	}
	total := 0
	if _, err := fmt.Sscanf(string(all), "MemTotal: %d kB", &total); err != nil {
		h.t.Fatal(err)
	}
	available := regexp.MustCompile(`(?m)^MemAvailable:.*$`)
	h.write("meminfo", available.ReplaceAllString(string(all), fmt.Sprintf("MemAvailable: %d kB", total/5)))
	h.pressure(0)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine, and its namespace too
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		for _, name := range []string{"meminfo", "pressure/memory"} {
			from := filepath.Join(h.dir, filepath.Base(name))
			err = errors.Join(err, unix.Mount(from, "/proc/"+name, "", unix.MS_BIND, ""))
		}
		if err == nil {
			err = d.Start()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		h.t.Fatal(err)
	}
}

// pressure sets the percentage of time in which work waits for memory.
func (h shortHost) pressure(some int) {
	h.t.Helper()
	line := fmt.Sprintf("avg10=%d.00 avg60=0.00 avg300=0.00 total=0\n", some)
	h.write("memory", "some "+line+"full "+line)
}

// write changes a file in place, because a bind mount of it would not show a replacement.
func (h shortHost) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// firstPaused returns the first n paused sandboxes, in order, with the reasons.
func (d *daemon) firstPaused(n int) (ids, why []string) {
	d.t.Helper()
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	err := d.c.Events(ctx, client.EventsRequest{All: true, Kinds: []string{"sandbox.paused"}}, func(e api.Event) error {
		ids, why = append(ids, e.Sandbox), append(why, e.Detail["reason"])
		if len(ids) == n {
			return enough
		}
		return nil
	})
	if err != enough {
		d.t.Fatalf("paused were %q: %v", ids, err)
	}
	return ids, why
}

// A host is short of memory. Unused sandboxes are paused, the longest unused first, and resume on
// the next request. Busy sandboxes continue, as do those without auto-resume.
func TestAShortHostPausesWhoIsIdle(t *testing.T) {
	first, d := shared(t), secondDaemon(t, "--pressure", "memory=5:100", "--pause-under-pressure", "1s")
	if err := cloneStore(first, d); err != nil {
		t.Fatal(err)
	}
	h := shortHost{t, t.TempDir()}
	h.start(d)
	d.unchanged()
	one, three := 1, 3
	sbs := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &three,
		SandboxLife: api.SandboxLife{AutoResume: true, AtEnd: api.AtEndPause}}).OK()
	asleep := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &one}).OK()[0].ID
	busy, idle := sbs[1].ID, []string{sbs[2].ID, sbs[0].ID}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := d.c.Exec(ctx, busy, api.ExecRequest{Args: []string{"sleep", "1000"}, TimeoutSecs: 1000})
		ended <- err
	}()
	defer func() { stop(); <-ended }()
	for _, id := range idle { // in this order, not in the order of their creation
		d.eval(id, "mine = '"+id+"'")
	}
	h.pressure(50)
	paused, why := d.firstPaused(len(idle))
	if !slices.Equal(paused, idle) || !strings.Contains(why[0], "short of memory") {
		t.Errorf("paused were %q for %q, want %q", paused, why, idle)
	}
	for _, id := range []string{busy, asleep} {
		if info, err := d.c.Sandbox(t.Context(), id); err != nil || info.Status != api.SandboxRunning {
			t.Errorf("%s is %q, %v", id, info.Status, err)
		}
	}
	h.pressure(0)
	for _, id := range idle {
		if got := d.eval(id, "mine"); got != "'"+id+"'" {
			t.Errorf("%s has %q", id, got)
		}
	}
}
