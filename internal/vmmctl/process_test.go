package vmmctl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vmspec"
)

func boot(t *testing.T, p *Process, kernel string) {
	t.Helper()
	if err := p.Boot(t.Context(), BootConfig{Kernel: file(t, kernel), Cmdline: "quiet", CID: 3, GenID: [16]byte{7}}); err != nil {
		t.Fatal(err)
	}
}

func TestLifeOfAProcess(t *testing.T) {
	ctx := t.Context()
	p := mustSpawn(t, behaveWell, nil)
	if s, err := p.Status(ctx); err != nil || s.State != StateShell || s.Version != Version || s.Shape.MemoryMiB != 64 {
		t.Fatalf("status of a shell: %+v, %v", s, err)
	}
	if err := p.Pause(ctx); err == nil || !strings.Contains(err.Error(), "shell") {
		t.Errorf("pause of a shell: %v, want its state named", err)
	}
	boot(t, p, "kernel")
	if err := p.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	memory, state := file(t, ""), file(t, "")
	if r, err := p.Save(ctx, memory, state); err != nil || r.MemoryBytes != 6 || r.StateBytes != 5 {
		t.Errorf("save: %+v, %v", r, err)
	}
	if b, _ := os.ReadFile(memory.Name()); string(b) != "memory" {
		t.Errorf("memory file holds %q", b)
	}
	if r, err := p.Resume(ctx); err != nil || r.RunningAt != 4711 {
		t.Fatalf("resume: %+v, %v", r, err)
	}
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	waitDone(t, p)
	if err := p.Pause(ctx); !errors.Is(err, ErrGone) {
		t.Errorf("pause of what has ended: %v, want ErrGone", err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("kill of what has ended: %v", err)
	}
}

func TestRestoreHandsDescriptorsOver(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	a, b := file(t, "a"), file(t, "b")
	r, err := p.Restore(t.Context(), RestoreConfig{
		State: file(t, "state"), CID: 9, Prepare: true, Disks: []Disk{{File: a, ReadOnly: true}, {File: b}},
		Memory: []Segment{{File: a, Length: 4096}, {Offset: 4096, Length: 4096}, {File: b, Offset: 8192, Length: 4096}, {File: a, FileOffset: 4096, Length: 4096}},
	})
	if err != nil || r != (RestoreResult{1, 2, 3}) {
		t.Fatalf("restore: %+v, %v", r, err)
	}
}

func TestExitIsTold(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	// The guest may end before its VMM has answered.
	err := p.Boot(t.Context(), BootConfig{Kernel: file(t, "poweroff:the guest switched itself off"), CID: 3})
	if err != nil && !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
	waitDone(t, p)
	if e := p.Exit(); e.Kind != ExitPowerOff || e.Reason != "the guest switched itself off" {
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
	if e := p.Exit(); e.Kind != ExitKilled || !strings.Contains(e.Reason, "killed") {
		t.Errorf("exit is %+v, want a kill", e)
	}
	if _, err := p.Status(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("status: %v, want ErrGone", err)
	}
}

// A call that is under way when the process dies ends as well.
func TestKillEndsCallsUnderWay(t *testing.T) {
	p := mustSpawn(t, hangInPause, nil)
	boot(t, p, "kernel")
	result := make(chan error, 1)
	go func() { result <- p.Pause(context.Background()) }()
	soon(t, "the call to be under way", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.pending) == 1
	})
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-result:
		if !errors.Is(err, ErrGone) {
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
			files := openDescriptors()
			_, err := spawn(t, c.behaviour, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			// One more is the /dev/null that stands for KVM.
			soon(t, "the descriptors to be closed", func() bool { return openDescriptors() <= files+1 })
		})
	}
	t.Run("no such program", func(t *testing.T) {
		dir := t.TempDir()
		_, err := Spawn(t.Context(), SpawnConfig{Binary: filepath.Join(dir, "nothing"), Shape: vmspec.Shape{MemoryMiB: 64, VCPUs: 1}, Dir: dir, KVM: open(t, os.DevNull)})
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
		_, err = Spawn(ctx, SpawnConfig{Binary: exe, Shape: vmspec.Shape{MemoryMiB: 64, VCPUs: neverReady}, Dir: dir, KVM: open(t, os.DevNull)})
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
	if s, err := second.Status(ctx); err != nil || s.State != StateRunning {
		t.Fatalf("status after adoption: %+v, %v", s, err)
	}
	if err := second.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	// The first daemon's end does not touch it; a third may come.
	second.Release()
	third, err := Adopt(ctx, ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := third.Status(ctx); err != nil || s.State != StatePaused {
		t.Fatalf("status after a second adoption: %+v, %v", s, err)
	}
	if err := third.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Process{first, second, third} {
		waitDone(t, p)
	}
	if e := third.Exit(); e.Kind != ExitKilled {
		t.Errorf("exit of an adopted process is %+v, want a kill", e)
	}
	if _, err := Adopt(ctx, ref, nil); !errors.Is(err, ErrGone) {
		t.Errorf("adopt what is gone: %v, want ErrGone", err)
	}
}

func TestAdoptRefuses(t *testing.T) {
	t.Run("another process under the pid", func(t *testing.T) {
		p := mustSpawn(t, behaveWell, nil)
		boot(t, p, "kernel")
		ref := p.Ref()
		ref.StartTime++
		if _, err := Adopt(t.Context(), ref, nil); !errors.Is(err, ErrGone) {
			t.Errorf("got %v, want ErrGone", err)
		}
		if err := ref.Kill(); err != nil {
			t.Errorf("kill by a reference to another process: %v", err)
		}
		if _, err := p.Status(t.Context()); err != nil {
			t.Errorf("the innocent process: %v", err)
		}
	})
	t.Run("another version", func(t *testing.T) {
		p := mustSpawn(t, otherVersion, nil)
		boot(t, p, "kernel")
		p.Release()
		if _, err := Adopt(t.Context(), p.Ref(), nil); err == nil || !strings.Contains(err.Error(), "control protocol") {
			t.Errorf("got %v, want an error about the version", err)
		}
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
	memory, state := file(t, ""), file(t, "")
	round := func() (ours, theirs int) {
		for range 20 {
			if _, err := p.Save(ctx, memory, state); err != nil {
				t.Fatal(err)
			}
		}
		s, err := p.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return openDescriptors(), int(s.CID)
	}
	ours, theirs := round()
	if o, th := round(); o != ours || th != theirs {
		t.Errorf("20 saves took the daemon from %d to %d descriptors and the VMM from %d to %d", ours, o, theirs, th)
	}
}

func TestNothingLeaksPerProcess(t *testing.T) {
	before := openDescriptors()
	for range 5 {
		t.Run("", func(t *testing.T) {
			p := mustSpawn(t, behaveWell, nil)
			boot(t, p, "kernel")
		})
	}
	if now := openDescriptors(); now > before {
		t.Errorf("%d descriptors are open, before five processes were %d", now, before)
	}
}

func TestTooManyDescriptorsAreRefused(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	c := RestoreConfig{State: file(t, "state")}
	for range MaxFiles {
		c.Memory = append(c.Memory, Segment{File: file(t, ""), Length: 4096})
	}
	_, err := p.Restore(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "descriptors") || errors.Is(err, ErrGone) {
		t.Errorf("got %v, want an error about descriptors, and the process is not gone", err)
	}
	if _, err := p.Status(t.Context()); err != nil {
		t.Errorf("status afterwards: %v", err)
	}
}

func TestAPreparedVMEndsWithItsDaemon(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	a := file(t, "a")
	if _, err := p.Restore(t.Context(), RestoreConfig{State: a, CID: 9, Prepare: true, Memory: []Segment{{File: a, Length: 4096}}}); err != nil {
		t.Fatal(err)
	}
	p.Release()
	waitDone(t, p)
}
