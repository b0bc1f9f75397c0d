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
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/failpoint"
	"github.com/forkd/forkd/internal/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

const (
	imageName = "box"
	parentTag = "parent"
	newTag    = "made" // by the operation
	patience  = time.Minute
)

// world is a daemon whose steps can be stopped at, with a snapshot to fork from.
type world struct {
	t      *testing.T
	d      *harness.Daemon
	points string // failpoint's directory
	marks  int

	names []string // what is there when nothing runs
}

func newWorld(t *testing.T) *world {
	t.Helper()
	kvmtest.Require(t)
	dir, err := harness.TempDir("cr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, points: filepath.Join(dir, "points")}
	if w.d, err = harness.New(t, dir); err != nil {
		t.Fatal(err)
	}
	w.d.Env = []string{failpoint.Variable + "=" + w.points}
	if err := os.Mkdir(w.points, 0o700); err != nil {
		t.Fatal(err)
	}
	box := harness.BoxFiles{Upper: kvmtest.Fixture(t, "py.upper.disk")}
	if err := harness.BoxImage(t, w.d.Images(), imageName, box); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.d.Finish(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", w.d.Log())
		}
	})
	w.start()
	if _, err := w.d.Client.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: parentTag, Image: imageName}, nil); err != nil {
		t.Fatal(err)
	}
	w.verified(parentTag) // its digests are written now
	w.fork(parentTag)     // and what the first child brings with it
	w.clean()
	w.names = w.inventory()
	return w
}

func (w *world) start() {
	w.t.Helper()
	if err := w.d.Start(); err != nil {
		w.t.Fatal(err)
	}
}

// sub is t.Run with the world on the subtest's side.
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

// lasting is what stays or comes by itself: receipts, also of what is gone, and
// the sizes of pools.
var lasting = regexp.MustCompile(`^/(receipts(/[^.].*\.json)?|pools\.json)$`)

// inventory is every name in the store, whatever its format, and every VM's
// directory.
func (w *world) inventory() []string {
	w.t.Helper()
	var out []string
	err := filepath.WalkDir(w.d.Data, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
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

// nothingLeft checks that there is what there was before. What is slow to go is
// given its time.
func (w *world) nothingLeft() {
	w.t.Helper()
	var now []string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
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

// verified checks that a snapshot's content is what was written.
func (w *world) verified(tag string) {
	w.t.Helper()
	w.eventually("digests of "+tag, func() bool {
		r, err := w.d.Client.VerifySnapshot(w.t.Context(), tag)
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
	n := 1
	res, err := w.d.Client.Fork(w.t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag, N: &n})
	if err != nil {
		w.t.Fatalf("fork %s: %v", tag, err)
	}
	for _, sb := range res.Failed() {
		w.t.Fatalf("fork %s: %s", tag, sb.Error)
	}
	return res.Sandboxes[0]
}

// mark leaves a new text in a sandbox's memory and on its disk, and returns it.
func (w *world) mark(id string) string {
	w.t.Helper()
	w.marks++
	text := strconv.Itoa(w.marks)
	w.sh(id, "echo "+text+" > /dev/shm/mark; echo "+text+" > /root/mark")
	return text
}

// marked checks what mark left.
func (w *world) marked(id, text string) {
	w.t.Helper()
	if got := w.sh(id, "cat /dev/shm/mark /root/mark"); got != text+"\n"+text+"\n" {
		w.t.Errorf("%s has %q, want %q twice", id, got, text)
	}
}

func (w *world) sh(id, script string) string {
	w.t.Helper()
	r, err := w.d.Client.Exec(w.t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", script}, TimeoutSecs: patience.Seconds()})
	if err != nil || r.ExitCode != 0 {
		w.t.Fatalf("%s: %q: %+v, %v", id, script, r, err)
	}
	return r.Stdout
}

// clean kills all sandboxes, and deletes what the
// operation made.
func (w *world) clean() {
	w.t.Helper()
	ctx := context.Background()
	list, err := w.d.Client.ListSandboxes(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sb := range list {
		if err := w.d.Client.Kill(ctx, sb.ID); err != nil {
			w.t.Error(err)
		}
	}
	if err := w.d.Client.DeleteSnapshot(ctx, newTag, client.DeleteOptions{}); err != nil && !client.IsNotFound(err) {
		w.t.Error(err)
	}
}

// passed are the steps that were passed since the last call, in order.
func (w *world) passed() []failpoint.Step {
	w.t.Helper()
	path := filepath.Join(w.points, failpoint.PassedFile)
	b, _ := os.ReadFile(path)
	_ = os.Remove(path)
	var out []failpoint.Step
	for _, name := range strings.Fields(string(b)) {
		if s := failpoint.Step(name); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func (w *world) arm(s failpoint.Step) {
	w.t.Helper()
	_ = os.Remove(w.reachedFile(s))
	if err := os.WriteFile(w.armedFile(s), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) disarm(s failpoint.Step) {
	_ = os.Remove(w.armedFile(s))
	_ = os.Remove(w.reachedFile(s))
}

func (w *world) armedFile(s failpoint.Step) string {
	return filepath.Join(w.points, failpoint.ArmedPrefix+string(s))
}

func (w *world) reachedFile(s failpoint.Step) string {
	return filepath.Join(w.points, failpoint.ReachedPrefix+string(s))
}

// reached waits until a process stands at the step.
func (w *world) reached(s failpoint.Step) {
	w.t.Helper()
	w.eventually("process at step "+string(s), func() bool {
		_, err := os.Stat(w.reachedFile(s))
		return err == nil
	})
}

// killVMMs ends the VMMs, but for one if that is not nil, and tells how many there were.
func (w *world) killVMMs(but *int) int {
	n := 0
	for _, pid := range w.d.Processes() {
		if (but == nil || pid != *but) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n
}
