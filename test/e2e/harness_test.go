package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// patience limits waits for events. It is long, because a slow machine is no failure.
const patience = 2 * time.Minute // emulated CPUs are slow

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %s", what, patience)
		}
	}
}

// fork makes n children of the parent, which are killed at the end of the test.
func (d *daemon) fork(n int) []api.SandboxInfo {
	d.t.Helper()
	res := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n})
	for _, sb := range res.Failed() {
		d.t.Fatalf("child %d: %s", sb.Index, sb.Error)
	}
	return res.Sandboxes
}

// forkSome makes children, which are killed at the end of the test. Some may fail.
func (d *daemon) forkSome(req api.CreateSandboxesRequest) client.ForkResult {
	d.t.Helper()
	res, err := d.c.Fork(d.t.Context(), req)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		for _, sb := range res.OK() {
			if err := d.c.Kill(context.Background(), sb.ID); err != nil && !client.IsNotFound(err) {
				d.t.Error(err)
			}
		}
	})
	return res
}

// kill ends a sandbox before the end of the test.
func (d *daemon) kill(id string) {
	d.t.Helper()
	if err := d.c.Kill(d.t.Context(), id); err != nil {
		d.t.Fatal(err)
	}
}

// oneSandbox returns a shared sandbox for tests without side effects on each other.
func (d *daemon) oneSandbox() string {
	d.t.Helper()
	theWorld.sandboxOnce.Do(func() {
		n := 1
		res, err := d.c.Fork(d.t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n})
		if err != nil {
			d.t.Fatal(err)
		}
		theWorld.sandboxID = res.Sandboxes[0].ID
	})
	if theWorld.sandboxID == "" {
		d.t.Fatal("there is no sandbox: the first fork failed")
	}
	return theWorld.sandboxID
}

// small returns a snapshot of a guest with busybox, which saves time in tests without Python.
// `forkd run` makes it.
func (d *daemon) small() string {
	d.t.Helper()
	theWorld.smallOnce.Do(func() {
		code, out, errs := d.cli("run", "box", "--", "sh", "-c", "echo first; exit 5")
		if code != 5 || out != "first\n" || !strings.Contains(errs, "boot") {
			d.t.Errorf("forkd run: exit code %d, stdout %q, stderr %q", code, out, errs)
		}
		_, list, _ := d.cli("-q", "snapshot", "ls")
		theWorld.smallTag = regexp.MustCompile(`(?m)^run-box-[0-9a-f]{8}$`).FindString(list)
	})
	if theWorld.smallTag == "" {
		d.t.Fatal("forkd run made no snapshot")
	}
	return theWorld.smallTag
}

// sh runs a script in a sandbox as root and returns its output.
func (d *daemon) sh(id, script string) string {
	d.t.Helper()
	r, err := d.c.Exec(d.t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", script}, User: "root", TimeoutSecs: patience.Seconds()})
	if err != nil {
		d.t.Fatalf("%s: %q: %v", id, script, err)
	}
	if r.ExitCode != 0 {
		d.t.Errorf("%s: %q: exit code %d: %s", id, script, r.ExitCode, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// eval runs Python in a sandbox and returns the result, or the output.
func (d *daemon) eval(id, code string) string {
	d.t.Helper()
	r, err := d.c.Eval(d.t.Context(), id, api.EvalRequest{Code: code})
	switch {
	case err != nil:
		d.t.Fatalf("%s: %q: %v", id, code, err)
	case r.Error != nil:
		d.t.Fatalf("%s: %q: %s", id, code, *r.Error)
	case r.Result == nil:
		return r.Stdout
	}
	return *r.Result
}

// alive checks that sandboxes answer and do work.
func (d *daemon) alive(sbs ...api.SandboxInfo) {
	d.t.Helper()
	for _, sb := range sbs {
		if got := d.eval(sb.ID, "int(numpy.arange(4).sum())"); got != "6" {
			d.t.Errorf("%s computes %q", sb.ID, got)
		}
		if info, err := d.c.Sandbox(d.t.Context(), sb.ID); err != nil || info.Status != api.SandboxRunning {
			d.t.Errorf("%s is %q, %v", sb.ID, info.Status, err)
		}
	}
}

// wantError checks an error's code and status, and the words in its text or reason. A client must
// be able to derive a next step from the error.
func wantError(t *testing.T, err error, code api.Code, words ...string) {
	t.Helper()
	var e *client.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error of code %s", err, code)
	}
	t.Logf("%s (%d): %s\n\treason: %s", e.Code, e.Status, e.Message, e.Reason)
	if e.Code != code || e.Status != code.Status() {
		t.Errorf("code %s, status %d, want %s, %d", e.Code, e.Status, code, code.Status())
	}
	for _, w := range words {
		if !strings.Contains(e.Message, w) && !strings.Contains(string(e.Reason), w) {
			t.Errorf("neither the text nor the reason says %q", w)
		}
	}
	// For these codes no single advice is always right.
	if e.Reason == "" && (code == api.CodeConflict || code == api.CodeForbidden) {
		t.Error("there is no reason, by which a client could tell what to do")
	}
	if !e.FromDaemon() && code != api.CodeInvalid { // such errors may be the agent's
		t.Error("it does not come from the daemon")
	}
}

// state is the daemon's state. A failed request must not change it.
type state struct {
	snapshots, files, vms []string
	sandboxes             []string
	processes             int
	unpinned              []string // those of files that a process has open, and that go when it closes them
}

// branched matches the name of a source's disk file after a branch. The disk continues in a file
// with a number, over the layers below.
var branched = regexp.MustCompile(`^(v[0-9]+-disk[0-9]+)-[0-9]+$`)

// files returns the names in the store: snapshots, layers with their pins, disks.
func (d *daemon) files() []string {
	files := names(d.store())
	for _, name := range names(filepath.Join(d.Data, "layers", "layers")) {
		if !strings.HasSuffix(name, ".digests") {
			files = append(files, name)
		}
	}
	for _, name := range names(filepath.Join(d.Data, "layers", "pins")) {
		if !strings.HasPrefix(name, "vm.") {
			files = append(files, name)
		}
	}
	for _, name := range names(d.owns()) {
		files = append(files, branched.ReplaceAllString(name, "$1"))
	}
	return files
}

// unpinned returns the layers without a pin.
func (d *daemon) unpinned() []string {
	var pins strings.Builder
	dir := filepath.Join(d.Data, "layers", "pins")
	for _, name := range names(dir) {
		b, _ := os.ReadFile(filepath.Join(dir, name)) // a pin may have gone meanwhile
		pins.Write(b)
	}
	return slices.DeleteFunc(names(filepath.Join(d.Data, "layers", "layers")), func(name string) bool {
		return strings.Contains(pins.String(), `"`+name+`"`)
	})
}

func (d *daemon) state(t *testing.T) state {
	t.Helper()
	ctx := context.Background() // it is also called after the test's context has ended
	s := state{files: d.files(), vms: d.vmDirs(), processes: len(d.processes()), unpinned: d.unpinned()}
	list, err := d.c.ListSnapshots(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, sn := range list {
		s.snapshots = append(s.snapshots, sn.Tag+" "+string(sn.Status))
	}
	sbs, err := d.c.ListSandboxes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range sbs {
		s.sandboxes = append(s.sandboxes, sb.ID+" "+string(sb.Status))
	}
	slices.Sort(s.sandboxes)
	return s
}

// unchanged records the daemon's state. At the end of the test, after the test's children are
// killed, it compares the state again.
func (d *daemon) unchanged() {
	d.t.Helper()
	// Earlier deletions, and data in a cloned store, are collected in the background.
	last := d.files()
	eventually(d.t, "end of the collection", func() bool {
		left, err := d.c.CollectLayers(d.t.Context(), true)
		now := d.files()
		settled := err == nil && len(left.Layers) == 0 && slices.Equal(now, last)
		last = now
		return settled
	})
	t, before := d.t, d.state(d.t)
	t.Cleanup(func() {
		var after state
		// The daemon reports the end of a VMM before it reaps the process.
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if after = d.state(t); equal(before, after) {
				return
			}
			if time.Now().After(end) {
				t.Errorf("before: %+v\nafter:  %+v", before, after)
				return
			}
		}
	})
}

// sub is t.Run, with the daemon bound to the subtest.
func (d *daemon) sub(name string, f func(t *testing.T)) {
	outer := d.t
	defer func() { d.t = outer }()
	outer.Run(name, func(t *testing.T) {
		d.t = t
		f(t)
	})
}

func equal(before, after state) bool {
	gone := func(name string) bool {
		return slices.Contains(before.unpinned, name) && !slices.Contains(after.files, name)
	}
	files := slices.DeleteFunc(slices.Clone(before.files), gone)
	return slices.Equal(before.snapshots, after.snapshots) && slices.Equal(files, after.files) &&
		slices.Equal(before.vms, after.vms) && slices.Equal(before.sandboxes, after.sandboxes) &&
		before.processes == after.processes
}

var regexpID = regexp.MustCompile(sandbox.IDPattern)

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
