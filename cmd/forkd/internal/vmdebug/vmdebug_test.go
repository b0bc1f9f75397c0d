//go:build linux

package vmdebug

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/engine/vmproc"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// host returns a run directory with one VM: this process.
func host(t *testing.T) (Host, string) {
	h := Host{Run: t.TempDir(), Proc: "/proc", KVM: t.TempDir()}
	dir := filepath.Join(h.Run, "vm", "v00000001")
	write(t, filepath.Join(dir, "sandbox.json"), `{"version":1,"info":{"ID":"sb-1"},"pausing":true}`)
	write(t, filepath.Join(dir, "vm.json"), fmt.Sprintf(
		`{"ref":{"dir":"x","pid":%d,"start_time":1},"shape":{"vcpus":2,"memory_mib":64},"group":"/g"}`, os.Getpid()))
	write(t, filepath.Join(dir, "vmm.log"), "first\n\x1b[31mlast\n")
	return h, dir
}

func TestARunningProcess(t *testing.T) {
	h, dir := host(t)
	fd, err := unix.Eventfd(3, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	write(t, filepath.Join(h.KVM, fmt.Sprintf("%d-12", os.Getpid()), "exits"), "17\n")
	write(t, filepath.Join(h.KVM, fmt.Sprintf("%d-12", os.Getpid()), "halt_exits"), "0\n")
	write(t, filepath.Join(h.KVM, fmt.Sprintf("%d-12", os.Getpid()), "vcpu0", "tsc-offset"), "5\n")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	vm, err := h.Read("sb-1")
	if err != nil || !vm.Running || !vm.Pausing || vm.PID != os.Getpid() || vm.CPUs != 2 || vm.Memory != 64 || vm.Note != "" {
		t.Fatalf("got %+v, %v", vm, err)
	}
	var own bool
	for _, th := range vm.Threads {
		own = own || th.ID == unix.Gettid() && th.State == "R"
	}
	if !own {
		t.Errorf("threads: %+v, want this one, running", vm.Threads)
	}
	var queued bool
	for _, q := range vm.Queues {
		queued = queued || q == Queue{fd, 3}
	}
	if !queued {
		t.Errorf("queues: %+v, want 3 at %d", vm.Queues, fd)
	}
	if len(vm.Exits) != 1 || vm.Exits[0] != (Count{"exits", 17}) {
		t.Errorf("exits: %+v", vm.Exits)
	}
	text := vm.Format()
	for _, want := range []string{"sandbox  sb-1\n", "2 vCPUs, 64 MiB, pausing\n", "dir      " + dir, "cgroup   /g\n",
		"3 notifications not taken", "kvm      exits 17\n", "log\n  first\n  \ufffd[31mlast\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestAProcessThatHasEnded(t *testing.T) {
	h, dir := host(t)
	h.Proc = t.TempDir()
	vm, err := h.Read("sb-1")
	if err != nil || vm.Running || !strings.Contains(vm.Format(), "the process has ended") || !strings.Contains(vm.Log, "last") {
		t.Errorf("got %+v, %v", vm, err)
	}
	if err := os.Remove(filepath.Join(dir, "vmm.log")); err != nil {
		t.Fatal(err)
	}
	if vm, err := h.Read("sb-1"); err != nil || !strings.HasPrefix(vm.Note, "log: ") {
		t.Errorf("without a log: %+v, %v", vm, err)
	}
}

func TestNoSuchSandbox(t *testing.T) {
	h, dir := host(t)
	if _, err := h.Read("sb-2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another sandbox: %v", err)
	}
	// The record of a rollback is valid only in the directory it names.
	write(t, filepath.Join(dir, "sandbox.json"), `{"dir":"v00000002","info":{"ID":"sb-1"}}`)
	if _, err := h.Read("sb-1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a record of another directory: %v", err)
	}
	write(t, filepath.Join(dir, "sandbox.json"), `{"info":`)
	if _, err := h.Read("sb-1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a torn record: %v", err)
	}
	if _, err := (Host{Run: t.TempDir()}).Read("sb-1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no run directory: %v", err)
	}
}

func TestALongLogIsCut(t *testing.T) {
	h, dir := host(t)
	write(t, filepath.Join(dir, "vmm.log"), strings.Repeat("x", 3*maxLog)+"end")
	if vm, err := h.Read("sb-1"); err != nil || len(vm.Log) != maxLog || !strings.HasSuffix(vm.Log, "end") {
		t.Errorf("%d bytes, %v", len(vm.Log), err)
	}
}

func TestNamesOfThreads(t *testing.T) {
	dir := t.TempDir()
	fields := " S 1 2 3 4 5 6 7 8 9 10 21 21 0"
	write(t, filepath.Join(dir, "stat"), "7 (a) (b\x1b)"+fields)
	if got, err := threadOf(dir); err != nil || got.Name != "a) (b\ufffd" || got.State != "S" || got.Ticks != 42 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", "7", "7 (a", "7 (a) S 1"} {
		write(t, filepath.Join(dir, "stat"), bad)
		if got, err := threadOf(dir); err == nil {
			t.Errorf("%q: got %+v", bad, got)
		}
	}
}

func TestNamesAreTheDaemons(t *testing.T) {
	if vmsName != vmproc.VMsName || vmJournal != vmproc.Journal || sandboxJournal != vmproc.SandboxJournal {
		t.Error("the daemon has other names")
	}
}
