package vmmctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forkd/forkd/internal/vmspec"
)

// limit is for what should be done at once; it is long for loaded machines.
const limit = time.Minute

// TestMain is also the VMM process of the tests: Spawn starts this binary under
// its name, with a shape that says how it behaves.
func TestMain(m *testing.M) {
	if os.Args[0] == "forkd-vmm" {
		os.Exit(fakeMain())
	}
	goleak.VerifyTestMain(m)
}

// How a fake VMM process behaves, as the number of its vCPUs.
const (
	behaveWell = 1 + iota
	exitAtOnce
	neverReady
	talkGarbage
	otherVersion
	hangInPause
)

func fakeMain() int {
	var shape vmspec.Shape
	if err := json.Unmarshal([]byte(os.Args[1]), &shape); err != nil {
		return 2
	}
	l, err := net.FileListener(os.NewFile(FDControl, "control"))
	if err != nil {
		return 2
	}
	h := &fakeVM{shape: shape, state: StateShell, exit: make(chan Exit, 1)}
	server := NewServer(l.(*net.UnixListener), h)
	h.dial = server.DialHost
	switch shape.VCPUs {
	case exitAtOnce:
		fmt.Fprintln(os.Stderr, "fake: nothing works here")
		return 3
	case neverReady:
		time.Sleep(time.Hour) // not select{}: without cgo the runtime would call that a deadlock
	case talkGarbage:
		c, err := l.Accept()
		if err != nil {
			return 2
		}
		c.Write([]byte("{this is not JSON"))
		time.Sleep(time.Hour) // not select{}: without cgo the runtime would call that a deadlock
	case otherVersion:
		h.version = Version + 1
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	select {
	case e := <-h.exit:
		server.SendExit(e)
	case <-served:
	}
	return 0
}

// fakeVM is the VM behind the control socket.
type fakeVM struct {
	shape   vmspec.Shape
	version int
	dial    func(context.Context, uint32) (net.Conn, error)
	exit    chan Exit

	mu    sync.Mutex
	state State
	calls []string
	disks []Disk
}

func (f *fakeVM) call(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

// Boot reads the kernel, whose content says what happens next.
func (f *fakeVM) Boot(r BootRequest) error {
	f.takeDisks(r.Disks)
	kernel := make([]byte, 64)
	n, err := r.Kernel.ReadAt(kernel, 0)
	if n == 0 {
		return fmt.Errorf("read kernel: %w", err)
	}
	f.call("boot %q %q cid %d gen %x disks %d initrd %v", kernel[:n], r.Cmdline, r.CID, r.GenID[0], len(r.Disks), r.Initrd != nil)
	f.mu.Lock()
	f.state = StateRunning
	f.mu.Unlock()
	if kind, reason, ok := strings.Cut(string(kernel[:n]), ":"); ok {
		f.exit <- Exit{Kind: ExitKind(kind), Reason: reason}
	}
	return nil
}

// takeDisks: they are the VM's from now on, even if it does not come up.
func (f *fakeVM) takeDisks(disks []Disk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disks = disks
}

func (f *fakeVM) Restore(r RestoreRequest) (RestoreResult, error) {
	f.takeDisks(r.Disks)
	for _, s := range r.Memory {
		if s.File == nil {
			continue
		}
		if _, err := s.File.Stat(); err != nil {
			return RestoreResult{}, err
		}
	}
	f.call("restore %d segments cid %d prepare %v disks %d", len(r.Memory), r.CID, r.Prepare, len(r.Disks))
	if r.Prepare {
		f.set(StatePrepared)
	} else {
		f.set(StateRunning)
	}
	return RestoreResult{MapNanos: 1, StateNanos: 2, ResumeNanos: 3}, nil
}

func (f *fakeVM) set(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = s
}

func (f *fakeVM) Pause() error {
	if f.shape.VCPUs == hangInPause {
		time.Sleep(time.Hour) // not select{}: without cgo the runtime would call that a deadlock
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != StateRunning {
		return fmt.Errorf("%w: it is %s", ErrState, f.state)
	}
	f.state = StatePaused
	return nil
}

func (f *fakeVM) Resume() (ResumeResult, error) {
	f.mu.Lock()
	f.state = StateRunning
	f.mu.Unlock()
	return ResumeResult{RunningAt: 4711}, nil
}

func (f *fakeVM) Capture(r CaptureRequest) (CaptureResult, error) {
	defer closeAll([]*os.File{r.Memory, r.State, r.Index})
	if r.MaxPause == time.Nanosecond {
		return CaptureResult{}, ErrPause
	}
	for i, f := range []*os.File{r.Memory, r.State, r.Index} {
		if _, err := f.WriteString([]string{"memory", "state", "index"}[i]); err != nil {
			return CaptureResult{}, err
		}
	}
	return CaptureResult{PauseNanos: 1, Mechanism: "wp-async", Rounds: 2, Bytes: 6, PausedBytes: 1}, nil
}

func (f *fakeVM) Captured() error { return nil }

// Rebase says in its error what arrived.
func (f *fakeVM) Rebase(r RebaseRequest) error {
	var said []string
	for _, b := range r.Bases {
		files := map[*os.File]bool{}
		for _, s := range b {
			files[s.File] = true
		}
		said = append(said, fmt.Sprintf("%d segments of %d files", len(b), len(files)))
		for file := range files {
			file.Close()
		}
	}
	return errors.New(strings.Join(said, ", "))
}

func (f *fakeVM) Save(memory, state *os.File, disks []*os.File) (SaveResult, error) {
	for i, d := range disks {
		if _, err := fmt.Fprintf(d, "disk %d", i); err != nil {
			return SaveResult{}, err
		}
	}
	if _, err := memory.WriteString("memory"); err != nil {
		return SaveResult{}, err
	}
	_, err := state.WriteString("state")
	return SaveResult{MemoryBytes: 6, StateBytes: 5, DiskBytes: int64(6 * len(disks))}, err
}

func (f *fakeVM) WriteHot(hot *os.File) (HotResult, error) {
	_, err := hot.WriteString("hot")
	return HotResult{Runs: 2, ReadPages: 3, WrittenPages: 4}, err
}

func (f *fakeVM) Populate(hot *os.File) (HotResult, error) {
	b := make([]byte, 8)
	n, _ := hot.ReadAt(b, 0)
	if string(b[:n]) != "hot" {
		return HotResult{}, fmt.Errorf("no hot set but %q", b[:n])
	}
	return HotResult{Runs: 2, KVMNanos: 5}, nil
}

// Status tells, as CID, how many descriptors the process has open.
func (f *fakeVM) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Status{Version: max(f.version, Version), State: f.state, Shape: f.shape, CID: uint32(openDescriptors())}
}

func openDescriptors() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// spawn starts a fake VMM process that is gone when the test ends.
func spawn(t *testing.T, behaviour int, dial HostDialer) (*Process, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kvm := open(t, os.DevNull)
	dir, err := os.MkdirTemp("", "vmm") // t.TempDir is too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p, err := Spawn(context.Background(), SpawnConfig{
		Binary: exe, Shape: vmspec.Shape{MemoryMiB: 64, VCPUs: behaviour}, Dir: dir, KVM: kvm, Dial: dial, Log: log,
	})
	if err == nil {
		t.Cleanup(func() {
			p.Kill()
			waitDone(t, p)
		})
	}
	return p, err
}

func mustSpawn(t *testing.T, behaviour int, dial HostDialer) *Process {
	t.Helper()
	p, err := spawn(t, behaviour, dial)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func waitDone(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(limit):
		t.Fatal("the VMM process does not end")
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// file makes a file with a content.
func file(t *testing.T, content string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return open(t, path)
}

// soon waits for a condition.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}

var errTest = errors.New("the daemon does not want it")
