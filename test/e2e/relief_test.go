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

// shortHost are the figures of a host that is short of memory, or not, as one daemon alone sees them.
type shortHost struct {
	t   *testing.T
	dir string
}

// start starts the daemon in a mount namespace of its own, where the kernel's account is the test's.
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
		runtime.LockOSThread() // and the thread ends with this, with its namespace
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

// pressure is how much of the time work waits for memory, in percent.
func (h shortHost) pressure(some int) {
	h.t.Helper()
	line := fmt.Sprintf("avg10=%d.00 avg60=0.00 avg300=0.00 total=0\n", some)
	h.write("memory", "some "+line+"full "+line)
}

// write changes a file where it is, as a mount of it shows no other.
func (h shortHost) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// firstPaused are the first sandboxes that were paused, in their order, and the reasons.
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

// A host is short of memory: who is used by nobody is paused, the longest unused first, and comes back when somebody
// wants it. Who is at work runs on, and who would not wake by itself.
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
	for _, id := range idle { // in this order, and not in that of their making
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
