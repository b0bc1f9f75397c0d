package client

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func boot(t *testing.T, p *Process, kernel string) {
	t.Helper()
	if err := p.Boot(t.Context(), vmm.BootConfig{Kernel: vmctltest.File(t, kernel), Cmdline: "quiet", CID: 3, GenID: [16]byte{7}}); err != nil {
		t.Fatal(err)
	}
}

func TestLifeOfAProcess(t *testing.T) {
	ctx := t.Context()
	p := mustSpawn(t, behaveWell, nil)
	if s, err := p.Status(ctx); err != nil || s.State != vmm.StateShell || s.Shape.MemoryMiB != 64 {
		t.Fatalf("status of a shell: %+v, %v", s, err)
	}
	if err := p.Pause(ctx); err == nil || !strings.Contains(err.Error(), "shell") || !errors.Is(err, vmm.ErrState) {
		t.Errorf("pause of a shell: %v, want its state named", err)
	}
	boot(t, p, "kernel")
	if err := p.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	memory, state := vmctltest.File(t, ""), vmctltest.File(t, "")
	if r, err := p.Save(ctx, vmm.SaveConfig{Memory: memory, State: state}); err != nil || r.MemoryBytes != 6 || r.StateBytes != 5 {
		t.Errorf("save: %+v, %v", r, err)
	}
	if b, _ := os.ReadFile(memory.Name()); string(b) != "memory" {
		t.Errorf("memory file holds %q", b)
	}
	if r, err := p.Resume(ctx); err != nil || r.RunningAt != 4711 {
		t.Fatalf("resume: %+v, %v", r, err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	waitDone(t, p)
	if err := p.Pause(ctx); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("pause of what has ended: %v, want ErrGone", err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("kill of what has ended: %v", err)
	}
}

func TestRestoreHandsDescriptorsOver(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	a, b := vmctltest.File(t, "a"), vmctltest.File(t, "b")
	r, err := p.Restore(t.Context(), vmm.RestoreConfig{
		State: vmctltest.File(t, "state"), CID: 9, Prepare: true, Disks: []vmm.Disk{{File: a, ReadOnly: true}, {File: b}},
		Memory: []extent.Extent{{File: a, Length: 4096}, {Offset: 4096, Length: 4096}, {File: b, Offset: 8192, Length: 4096}, {File: a, FileOffset: 4096, Length: 4096}},
	})
	if err != nil || r != (vmm.RestoreResult{Map: 1, State: 2}) {
		t.Fatalf("restore: %+v, %v", r, err)
	}
}

func TestExitIsTold(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	// The guest may end before its VMM has answered.
	err := p.Boot(t.Context(), vmm.BootConfig{Kernel: vmctltest.File(t, "poweroff:the guest switched itself off"), CID: 3})
	if err != nil && !errors.Is(err, vmm.ErrGone) {
		t.Fatal(err)
	}
	waitDone(t, p)
	if e := p.Exit(); e.Kind != vmm.ExitPowerOff || e.Reason != "the guest switched itself off" {
		t.Errorf("exit is %+v", e)
	}
}

func TestKilledWithNine(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	boot(t, p, "kernel")
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitDone(t, p)
	if e := p.Exit(); e.Kind != vmm.ExitKilled || !strings.Contains(e.Reason, "killed") {
		t.Errorf("exit is %+v, want a kill", e)
	}
	if _, err := p.Status(t.Context()); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("status: %v, want ErrGone", err)
	}
}

// The pid of an ended process may be reused before its end is noticed.
func TestKillDoesNotGoByTheNumber(t *testing.T) {
	bystander := exec.Command("sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { bystander.Wait(); close(ended) }()
	defer func() { bystander.Process.Kill(); <-ended }()

	spawned := mustSpawn(t, behaveWell, nil)
	first := mustSpawn(t, behaveWell, nil)
	boot(t, first, "kernel")
	ref := first.Ref()
	first.Release()
	adopted, err := Adopt(t.Context(), ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*Process{"spawned": spawned, "adopted": adopted} {
		p.pid = bystander.Process.Pid
		if err := p.Kill(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		select {
		case <-p.Done():
		case <-ended:
			t.Fatalf("the one that was %s is not killed: another one is", name)
		case <-time.After(limit):
			t.Fatalf("the one that was %s is not killed", name)
		}
		if err := p.Kill(); err != nil {
			t.Errorf("%s, a second time: %v", name, err)
		}
	}
	waitDone(t, first)
	select {
	case <-ended:
		t.Error("the bystander is gone")
	default:
	}
}

// A pending call ends when the process dies.
func TestKillEndsCallsUnderWay(t *testing.T) {
	p := mustSpawn(t, hangInPause, nil)
	boot(t, p, "kernel")
	result := make(chan error, 1)
	go func() { result <- p.Pause(context.Background()) }()
	vmctltest.Soon(t, "the call to be under way", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.pending) == 1
	})
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-result:
		if !errors.Is(err, vmm.ErrGone) {
			t.Errorf("got %v, want ErrGone", err)
		}
	case <-time.After(limit):
		t.Fatal("the call hangs")
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	p := mustSpawn(t, hangInPause, nil)
	boot(t, p, "kernel")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	if err := p.Pause(ctx); !errors.Is(err, errTest) {
		t.Errorf("got %v, want the context's cause", err)
	}
}

func TestSpawnFails(t *testing.T) {
	for _, c := range []struct {
		name      string
		behaviour int
		want      string
	}{
		{"program exits at once", exitAtOnce, "exit status 3"},
		{"program talks garbage", talkGarbage, ""},
		{"no such shape", 99, "vcpus is 99"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := vmctltest.OpenDescriptors()
			_, err := spawn(t, c.behaviour, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			// One more is the /dev/null that stands for KVM.
			vmctltest.Soon(t, "the descriptors to be closed", func() bool { return vmctltest.OpenDescriptors() <= files+1 })
		})
	}
	t.Run("no such program", func(t *testing.T) {
		dir := t.TempDir()
		_, err := Spawn(t.Context(), SpawnConfig{Binary: filepath.Join(dir, "nothing"), Shape: vmspec.Shape{MemoryMiB: 64, VCPUs: 1}, Dir: dir, KVM: vmctltest.Open(t, os.DevNull)})
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v, want %v", err, os.ErrNotExist)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%v remains in the run directory", left)
		}
	})
	t.Run("never ready", func(t *testing.T) {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err = Spawn(ctx, SpawnConfig{Binary: exe, Shape: vmspec.Shape{MemoryMiB: 64, VCPUs: neverReady}, Dir: dir, KVM: vmctltest.Open(t, os.DevNull)})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%v remains in the run directory", left)
		}
	})
}

func TestAdopt(t *testing.T) {
	ctx := t.Context()
	first := mustSpawn(t, behaveWell, nil)
	boot(t, first, "kernel")
	ref := first.Ref()
	first.Release()
	second, err := Adopt(ctx, ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := second.Status(ctx); err != nil || s.State != vmm.StateRunning {
		t.Fatalf("status after adoption: %+v, %v", s, err)
	}
	if err := second.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	// The first daemon's end does not affect it; a third may come.
	second.Release()
	third, err := Adopt(ctx, ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := third.Status(ctx); err != nil || s.State != vmm.StatePaused {
		t.Fatalf("status after a second adoption: %+v, %v", s, err)
	}
	if err := third.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Process{first, second, third} {
		waitDone(t, p)
	}
	if e := third.Exit(); e.Kind != vmm.ExitKilled {
		t.Errorf("exit of an adopted process is %+v, want a kill", e)
	}
	if _, err := Adopt(ctx, ref, nil); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("adopt what is gone: %v, want ErrGone", err)
	}
}

func TestAdoptRefuses(t *testing.T) {
	t.Run("another process under the pid", func(t *testing.T) {
		p := mustSpawn(t, behaveWell, nil)
		boot(t, p, "kernel")
		ref := p.Ref()
		ref.StartTime++
		if _, err := Adopt(t.Context(), ref, nil); !errors.Is(err, vmm.ErrGone) {
			t.Errorf("got %v, want ErrGone", err)
		}
		if err := ref.Kill(); err != nil {
			t.Errorf("kill by a reference to another process: %v", err)
		}
		if _, err := p.Status(t.Context()); err != nil {
			t.Errorf("the innocent process: %v", err)
		}
	})
	t.Run("a newer version", func(t *testing.T) {
		p := mustSpawn(t, newerVersion, nil)
		boot(t, p, "kernel")
		p.Release()
		if _, err := Adopt(t.Context(), p.Ref(), nil); err == nil || !strings.Contains(err.Error(), "control protocol") {
			t.Errorf("got %v, want an error about the version", err)
		}
	})
	t.Run("the oldest version", func(t *testing.T) {
		p := mustSpawn(t, oldestVersion, nil)
		boot(t, p, "kernel")
		p.Release()
		again, err := Adopt(t.Context(), p.Ref(), nil)
		if err != nil {
			t.Fatal(err)
		}
		again.Release()
	})
}

func TestRefKill(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	if err := p.Ref().Kill(); err != nil {
		t.Fatal(err)
	}
	waitDone(t, p)
	if err := p.Ref().Kill(); err != nil {
		t.Errorf("kill of what is gone: %v", err)
	}
}

// A shell belongs to its daemon: it ends with the connection.
func TestShellEndsWithItsDaemon(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	p.Release()
	waitDone(t, p)
}

func TestNothingLeaksPerCall(t *testing.T) {
	ctx := t.Context()
	p := mustSpawn(t, behaveWell, nil)
	boot(t, p, "kernel")
	memory, state := vmctltest.File(t, ""), vmctltest.File(t, "")
	round := func() (ours, theirs int) {
		for range 20 {
			if _, err := p.Save(ctx, vmm.SaveConfig{Memory: memory, State: state}); err != nil {
				t.Fatal(err)
			}
		}
		s, err := p.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return vmctltest.OpenDescriptors(), int(s.CID)
	}
	ours, theirs := round()
	if o, th := round(); o > ours || th > theirs { // earlier tests may still close theirs
		t.Errorf("20 saves took the daemon from %d to %d descriptors and the VMM from %d to %d", ours, o, theirs, th)
	}
}

func TestNothingLeaksPerProcess(t *testing.T) {
	before := vmctltest.OpenDescriptors()
	for range 5 {
		t.Run("", func(t *testing.T) {
			p := mustSpawn(t, behaveWell, nil)
			boot(t, p, "kernel")
		})
	}
	if now := vmctltest.OpenDescriptors(); now > before {
		t.Errorf("%d descriptors are open, before five processes were %d", now, before)
	}
}

func TestTooManyDescriptorsAreRefused(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	c := vmm.RestoreConfig{State: vmctltest.File(t, "state")}
	for range wire.MaxFiles {
		c.Memory = append(c.Memory, extent.Extent{File: vmctltest.File(t, ""), Length: 4096})
	}
	_, err := p.Restore(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "descriptors") || errors.Is(err, vmm.ErrGone) {
		t.Errorf("got %v, want an error about descriptors, and the process is not gone", err)
	}
	if _, err := p.Status(t.Context()); err != nil {
		t.Errorf("status afterwards: %v", err)
	}
}

func TestAPreparedVMEndsWithItsDaemon(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	a := vmctltest.File(t, "a")
	if _, err := p.Restore(t.Context(), vmm.RestoreConfig{State: a, CID: 9, Prepare: true, Memory: []extent.Extent{{File: a, Length: 4096}}}); err != nil {
		t.Fatal(err)
	}
	p.Release()
	waitDone(t, p)
}
