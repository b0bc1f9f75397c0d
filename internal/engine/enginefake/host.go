package enginefake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/sys/hostproc"
	"github.com/forkd/forkd/internal/sys/rundir"
)

// Host holds the state that outlives an engine: its directories.
type Host struct {
	T         *testing.T
	Cfg       engine.Config  // of the next engine
	Available int64          // bytes of memory
	HostFacts hostproc.Facts // except the available memory
}

// Facts returns the facts set by the test, by default plenty.
func (h *Host) Facts() (hostproc.Facts, error) {
	f := h.HostFacts
	f.MemoryAvailable = h.Available
	return f, nil
}

// NewHost returns a host with images and an empty store. The end of the test ends its VMs.
func NewHost(t *testing.T) *Host {
	t.Helper()
	run, err := os.MkdirTemp("", "sb") // short: sockets have to fit
	if err != nil {
		t.Fatal(err)
	}
	d, err := rundir.Open(run) // before the test puts files there
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if err := os.Mkdir(filepath.Join(run, "fake"), 0o700); err != nil { // tokens, see fake
		t.Fatal(err)
	}
	h := &Host{T: t, Available: 64 << 30, HostFacts: hostproc.Facts{
		MemoryTotal: 64 << 30, DiskFree: 1 << 40, DiskTotal: 2 << 40,
		Files: 100, MaxFiles: 100_000, Threads: 1000, MaxThreads: 100_000}}
	h.Cfg = config(t.TempDir(), run, fakeImages(t))
	h.Cfg.Host = h
	if h.Cfg.VMMBinary, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.KillAll()
		os.RemoveAll(run)
	})
	return h
}

func config(store, run string, images Images) engine.Config {
	return engine.Config{
		StoreDir: store, RunDir: run, VMMBinary: "/proc/self/exe",
		OpenKVM:     func() (*os.File, error) { return os.Open(os.DevNull) },
		Images:      images,
		Concurrency: 4,
	}
}

// Fault makes n VMs misbehave: see fake.
func (h *Host) Fault(name string, n int) {
	h.T.Helper()
	dir := filepath.Join(h.Cfg.RunDir, "fake")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.T.Fatal(err)
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.%d", name, i)), nil, 0o600); err != nil {
			h.T.Fatal(err)
		}
	}
}

// KillAll ends VMs left by a test, found by their journals.
func (h *Host) KillAll() {
	dirs, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "vm", "*"))
	for _, d := range dirs {
		var rec vmproc.Record
		if vmproc.ReadJSON(filepath.Join(d, vmproc.Journal), &rec) == nil {
			if err := rec.Ref.Kill(); err != nil {
				h.T.Errorf("end VM %d: %v", rec.Ref.PID, err)
			}
		}
	}
}

// Open starts an engine. The end of the test closes it.
func (h *Host) Open() *engine.Engine {
	h.T.Helper()
	e, err := engine.Open(h.T.Context(), h.Cfg)
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { h.Close(e) })
	return e
}

// Close closes an engine, which has 20 seconds for it.
func (h *Host) Close(e *engine.Engine) {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		h.T.Error(err)
	}
}

// Empty waits until the run directory contains no VM directories.
func (h *Host) Empty() {
	h.T.Helper()
	Eventually(h.T, "an empty run directory", func() bool {
		left, _ := os.ReadDir(filepath.Join(h.Cfg.RunDir, "vm"))
		return len(left) == 0
	})
}

// Stored returns the names in the snapshot store.
func (h *Host) Stored() string {
	entries, err := os.ReadDir(filepath.Join(h.Cfg.StoreDir, "snapshots"))
	if err != nil {
		h.T.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// Eventually waits for a condition, and fails the test after a minute.
func Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s after a minute", what)
		}
	}
}

// Images is an image store with "tiny", and "disky", which has a writable disk once packUpper has
// made it.
type Images struct {
	Dir    string
	Digest string // of all; empty for the usual one
	First  string // first-use command; if empty, a shell is started
}

func imagesIn(dir string) Images { return Images{Dir: dir} }

func fakeImages(t *testing.T) Images {
	t.Helper()
	i := imagesIn(t.TempDir())
	for name, text := range map[string]string{"vmlinux": "a kernel", "initrd": "an initrd", "root": "a root"} {
		if err := os.WriteFile(filepath.Join(i.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

func (i Images) Image(_ context.Context, name string) (sandbox.Image, error) {
	if name != "tiny" && name != "disky" {
		return sandbox.Image{}, fmt.Errorf("image %s: %w", name, sandbox.ErrNotFound)
	}
	img := sandbox.Image{
		Name: name, Digest: "sha256:1234", KernelVersion: "6.12",
		Kernel: i.Dir + "/vmlinux", Initrd: i.Dir + "/initrd", Root: i.Dir + "/root",
		MemoryMiB: Shape.MemoryMiB, VCPUs: Shape.VCPUs, Warm: []sandbox.WarmStep{{Language: "python", Code: "import numpy"}},
	}
	if name == "disky" {
		img.Upper = i.Dir + "/upper"
	}
	img.FirstUse = i.First
	if i.Digest != "" {
		img.Digest = i.Digest
	}
	return img, nil
}

// Snapshot makes the snapshot most tests fork.
func (h *Host) Snapshot(e *engine.Engine, tag string) sandbox.SnapshotInfo {
	h.T.Helper()
	s, err := e.CreateSnapshot(h.T.Context(), sandbox.CreateRequest{Tag: tag, Image: "tiny"}, nil)
	if err != nil {
		h.T.Fatal(err)
	}
	return s
}

// Fork makes n children. All of them must succeed.
func (h *Host) Fork(e *engine.Engine, tag string, n int) []sandbox.Info {
	h.T.Helper()
	r, err := e.Fork(h.T.Context(), sandbox.ForkRequest{Tag: tag, N: n})
	if err != nil {
		h.T.Fatal(err)
	}
	var out []sandbox.Info
	for _, c := range r.Children {
		if c.Err != nil {
			h.T.Fatalf("child %d: %v", c.Index, c.Err)
		}
		out = append(out, c.Info)
	}
	return out
}

// Eval returns the result of an evaluation in a sandbox; see fakeAgent.Eval for what can be asked.
func (h *Host) Eval(e *engine.Engine, id, code string) string {
	h.T.Helper()
	r, err := e.Eval(h.T.Context(), id, sandbox.EvalRequest{Code: code})
	if err != nil {
		h.T.Fatal(err)
	}
	return r.Result
}

// WantError checks an error's kind and the required parts of its text.
func WantError(t *testing.T, err, kind error, texts ...string) {
	t.Helper()
	if err == nil || !errors.Is(kind, ErrAny) && !errors.Is(err, kind) {
		t.Errorf("got error %v, want one of kind %q", err, kind)
		return
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error lacks %q: %v", s, err)
		}
	}
}

// OpenFiles counts this process's descriptors.
func OpenFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			n++
		}
	}
	return n
}
