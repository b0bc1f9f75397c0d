package crash

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/failpoint/failpointtest"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

const (
	imageName = "box"
	parentTag = "parent"
	newTag    = "made" // of the operation
)

var patience = harness.Patience()

// world is a daemon with failpoints to stop at, and a snapshot to fork from.
type world struct {
	t      *testing.T
	d      *harness.Daemon
	points *failpointtest.Conductor
	marks  int

	names []string // the names in the store when no sandbox runs
}

func newWorld(t *testing.T, change ...func(*harness.Daemon)) *world {
	t.Helper()
	kvmtest.Require(t)
	dir, err := harness.TempDir("cr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t}
	if w.points, err = failpointtest.Listen(filepath.Join(dir, "points")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.points.Close)
	if w.d, err = harness.New(t, dir); err != nil {
		t.Fatal(err)
	}
	w.d.Env, w.d.NoOracle = w.points.Environ(), true
	for _, c := range change {
		c(w.d)
	}
	sb := harness.SmallImage{Upper: kvmtest.Fixture(t, "py.upper.disk")}
	if err := harness.PutSmallImage(t, w.d.Images(), imageName, sb); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.d.Finish(); err != nil {
			t.Error(err)
		}
		t.Log(w.d.Account())
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", w.d.Log())
		}
	})
	w.start()
	if _, err := w.d.Client.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: parentTag, Image: imageName}, nil); err != nil {
		t.Fatal(err)
	}
	w.verified(parentTag) // its digests exist now
	w.fork(parentTag)     // and the files of a first child
	w.clean()
	w.names = w.rest()
	return w
}

func (w *world) start() {
	w.t.Helper()
	if err := w.d.Start(); err != nil {
		w.t.Fatal(err)
	}
}

// sub is t.Run, with the world bound to the subtest.
func (w *world) sub(name string, f func()) {
	outer := w.t
	defer func() { w.t = outer }()
	outer.Run(name, func(t *testing.T) {
		w.t = t
		f()
	})
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("no %s within %s", what, patience)
		}
	}
}

// lasting matches files that persist or are written at any time: receipts, also of deleted objects,
// and the sizes of pools.
var lasting = regexp.MustCompile(`^/(receipts(/[^.].*\.json)?|pools\.json)$`)

// rest returns the inventory once no file is being written.
func (w *world) rest() (names []string) {
	w.t.Helper()
	w.eventually("end of all writing", func() bool {
		names = w.inventory()
		return !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "/.new-") })
	})
	return names
}

// inventory returns every name in the store, of any format, and every VM's directory.
func (w *world) inventory() []string {
	w.t.Helper()
	var out []string
	err := filepath.WalkDir(w.d.Data, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err == nil && path == w.d.Images() {
			return fs.SkipDir
		}
		if name := strings.TrimPrefix(path, w.d.Data); !lasting.MatchString(name) {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, vm := range w.d.VMDirs() {
		out = append(out, "run/vm/"+vm)
	}
	slices.Sort(out)
	return out
}

// nothingLeft compares the inventory with the one before. It waits for slow deletions.
func (w *world) nothingLeft() {
	w.t.Helper()
	var now []string
	// Deletion runs in the background, at the lowest priority.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now = w.inventory(); slices.Equal(now, w.names) {
			break
		}
	}
	for _, name := range now {
		if !slices.Contains(w.names, name) {
			w.t.Errorf("left over: %s", name)
		}
	}
	for _, name := range w.names {
		if !slices.Contains(now, name) {
			w.t.Errorf("gone: %s", name)
		}
	}
	for _, pid := range w.d.Processes() {
		w.t.Errorf("VMM %d still runs", pid)
	}
}

// verified compares a snapshot's content with its digests.
func (w *world) verified(tag string) {
	w.t.Helper()
	w.eventually("digests of "+tag, func() bool {
		r, err := w.d.Client.VerifySnapshot(w.t.Context(), tag, nil)
		if client.CodeOf(err) == api.CodeConflict {
			return false // not computed yet
		}
		if err != nil || !r.OK {
			w.t.Fatalf("verify %s: %+v, %v", tag, r, err)
		}
		return true
	})
}

// fork makes a child.
func (w *world) fork(tag string) api.SandboxInfo {
	w.t.Helper()
	return w.d.Fork(w.t, tag, 1)[0]
}

// mark stores a new text in a sandbox's memory and on its disk, and returns it.
func (w *world) mark(id string) string {
	w.t.Helper()
	w.marks++
	text := strconv.Itoa(w.marks)
	w.sh(id, "echo "+text+" > /dev/shm/mark; echo "+text+" > /root/mark")
	return text
}

// marked checks the text stored by mark.
func (w *world) marked(id, text string) {
	w.t.Helper()
	info, err := w.d.Client.Sandbox(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	if info.Cold { // its memory was not kept
		if got := w.sh(id, "cat /root/mark"); got != text+"\n" {
			w.t.Errorf("%s has %q on its disk, want %q", id, got, text)
		}
		return
	}
	if got := w.sh(id, "cat /dev/shm/mark /root/mark"); got != text+"\n"+text+"\n" {
		w.t.Errorf("%s has %q, want %q twice", id, got, text)
	}
}

func (w *world) sh(id, script string) string {
	w.t.Helper()
	return w.d.Shell(w.t, id, script)
}

// clean kills all sandboxes, and deletes the operation's snapshots.
func (w *world) clean() {
	w.t.Helper()
	ctx := context.Background()
	list, err := w.d.Client.ListSandboxes(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sb := range list {
		if err := w.d.Kill(sb.ID); err != nil {
			w.t.Error(err)
		}
	}
	if err := w.d.Client.DeleteSnapshot(ctx, newTag, client.DeleteOptions{}); err != nil && !client.IsNotFound(err) {
		w.t.Error(err)
	}
}

// passed returns the steps passed since the last call, in order.
func (w *world) passed() []failpoint.Step { return w.points.Passed() }

func (w *world) arm(s failpoint.Step)    { w.points.Arm(s) }
func (w *world) disarm(s failpoint.Step) { w.points.Disarm(s) }

// reached waits until a process has stopped at the step.
func (w *world) reached(s failpoint.Step) {
	w.t.Helper()
	w.eventually("process at step "+string(s), func() bool { return w.points.Reached(s) })
}

// killVMMs kills the VMMs, except but if that is not nil. It returns their number.
func (w *world) killVMMs(but *int) int {
	n := 0
	for _, pid := range w.d.Processes() {
		if (but == nil || pid != *but) && w.d.KillProcess(pid) {
			n++
		}
	}
	return n
}
