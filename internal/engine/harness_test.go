package engine

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
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/sys/hostproc"
	"github.com/forkd/forkd/internal/sys/rundir"
)

// host holds the state that outlives an engine: its directories.
type host struct {
	t         *testing.T
	cfg       Config
	available int64 // bytes of memory
	facts     hostproc.Facts
}

// Facts returns the facts set by the test, by default plenty.
func (h *host) Facts() (hostproc.Facts, error) {
	f := h.facts
	f.MemoryAvailable = h.available
	return f, nil
}

func newHost(t *testing.T) *host {
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
	h := &host{t: t, available: 64 << 30, facts: hostproc.Facts{MemoryTotal: 64 << 30, DiskFree: 1 << 40, DiskTotal: 2 << 40,
		Files: 100, MaxFiles: 100_000, Threads: 1000, MaxThreads: 100_000}}
	h.cfg = config(t.TempDir(), run, fakeImages(t))
	h.cfg.Host = h
	if h.cfg.VMMBinary, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.killAll()
		os.RemoveAll(run)
	})
	return h
}

func config(store, run string, images images) Config {
	return Config{
		StoreDir: store, RunDir: run, VMMBinary: "/proc/self/exe",
		OpenKVM:     func() (*os.File, error) { return os.Open(os.DevNull) },
		Images:      images,
		Concurrency: 4,
	}
}

// fault makes n VMs misbehave: see fake.
func (h *host) fault(name string, n int) {
	h.t.Helper()
	dir := filepath.Join(h.cfg.RunDir, "fake")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.t.Fatal(err)
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.%d", name, i)), nil, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
}

// killAll ends VMs left by a test, found by their journals.
func (h *host) killAll() {
	dirs, _ := filepath.Glob(filepath.Join(h.cfg.RunDir, "vm", "*"))
	for _, d := range dirs {
		var rec vmproc.Record
		if vmproc.ReadJSON(filepath.Join(d, vmproc.Journal), &rec) == nil {
			if err := rec.Ref.Kill(); err != nil {
				h.t.Errorf("end VM %d: %v", rec.Ref.PID, err)
			}
		}
	}
}

// open starts an engine. The end of the test closes it.
func (h *host) open() *Engine {
	h.t.Helper()
	e, err := Open(h.t.Context(), h.cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { h.close(e) })
	return e
}

func (h *host) close(e *Engine) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		h.t.Error(err)
	}
}

// empty waits until the run directory contains no VM directories.
func (h *host) empty() {
	h.t.Helper()
	eventually(h.t, "an empty run directory", func() bool {
		left, _ := os.ReadDir(filepath.Join(h.cfg.RunDir, "vm"))
		return len(left) == 0
	})
}

// stored returns the names in the snapshot store.
func (h *host) stored() string {
	entries, err := os.ReadDir(filepath.Join(h.cfg.StoreDir, "snapshots"))
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s after a minute", what)
		}
	}
}

// images is an image store with "tiny", and "disky", which has a writable disk once packUpper has
// made it.
type images struct {
	dir    string
	digest string // of all; empty for the usual one
	first  string // first-use command; if empty, a shell is started
}

func imagesIn(dir string) images { return images{dir: dir} }

func fakeImages(t *testing.T) images {
	t.Helper()
	i := imagesIn(t.TempDir())
	for name, text := range map[string]string{"vmlinux": "a kernel", "initrd": "an initrd", "root": "a root"} {
		if err := os.WriteFile(filepath.Join(i.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

func (i images) Image(_ context.Context, name string) (sandbox.Image, error) {
	if name != "tiny" && name != "disky" {
		return sandbox.Image{}, fmt.Errorf("image %s: %w", name, sandbox.ErrNotFound)
	}
	img := sandbox.Image{
		Name: name, Digest: "sha256:1234", KernelVersion: "6.12",
		Kernel: i.dir + "/vmlinux", Initrd: i.dir + "/initrd", Root: i.dir + "/root",
		MemoryMiB: fakeShape.MemoryMiB, VCPUs: fakeShape.VCPUs, Warm: []sandbox.WarmStep{{Language: "python", Code: "import numpy"}},
	}
	if name == "disky" {
		img.Upper = i.dir + "/upper"
	}
	img.FirstUse = i.first
	if i.digest != "" {
		img.Digest = i.digest
	}
	return img, nil
}

// snapshot makes the snapshot most tests fork.
func (h *host) snapshot(e *Engine, tag string) sandbox.SnapshotInfo {
	h.t.Helper()
	s, err := e.CreateSnapshot(h.t.Context(), sandbox.CreateRequest{Tag: tag, Image: "tiny"}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// fork makes n children. All of them must succeed.
func (h *host) fork(e *Engine, tag string, n int) []sandbox.Info {
	h.t.Helper()
	r, err := e.Fork(h.t.Context(), sandbox.ForkRequest{Tag: tag, N: n})
	if err != nil {
		h.t.Fatal(err)
	}
	var out []sandbox.Info
	for _, c := range r.Children {
		if c.Err != nil {
			h.t.Fatalf("child %d: %v", c.Index, c.Err)
		}
		out = append(out, c.Info)
	}
	return out
}

func (h *host) eval(e *Engine, id, code string) string {
	h.t.Helper()
	r, err := e.Eval(h.t.Context(), id, sandbox.EvalRequest{Code: code})
	if err != nil {
		h.t.Fatal(err)
	}
	return r.Result
}

// wantError checks an error's kind and the required parts of its text.
func wantError(t *testing.T, err, kind error, texts ...string) {
	t.Helper()
	if err == nil || kind != errAny && !errors.Is(err, kind) {
		t.Errorf("got error %v, want one of kind %q", err, kind)
		return
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error lacks %q: %v", s, err)
		}
	}
}

// openFiles counts this process's descriptors.
func openFiles(t *testing.T) int {
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
