package client

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	vmclient "github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func spawnVMM(t *testing.T, s *Spawner) *vmclient.Process {
	t.Helper()
	dir, err := os.MkdirTemp("", "jail")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	p, err := vmclient.Spawn(ctx, vmclient.SpawnConfig{
		Binary: program, Shape: vmspec.Shape{MemoryMiB: 64, VCPUs: wellBehaved}, Dir: dir,
		KVM: vmctltest.Open(t, os.DevNull), Starter: s,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		ended(t, p)
	})
	boot := vmm.BootConfig{Kernel: vmctltest.File(t, "kernel"), Cmdline: "quiet", CID: 3, GenID: [16]byte{7}}
	if err := p.Boot(ctx, boot); err != nil {
		t.Fatal(err)
	}
	return p
}

func ended(t *testing.T, p *vmclient.Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(limit):
		t.Fatal("the VMM does not end")
	}
}

// The daemon can do the same with a VMM in a jail as with any other.
func TestKilledVMMInAJailIsNoticed(t *testing.T) {
	p := spawnVMM(t, openSpawner(t, false))
	if s, err := p.Status(t.Context()); err != nil || s.State != vmm.StateRunning {
		t.Fatalf("status %+v, %v", s, err)
	}
	if err := p.Ref().Check(must(os.Executable())); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, p)
	if e := p.Exit(); e.Kind != vmm.ExitKilled || !strings.Contains(e.Reason, "signal: killed") {
		t.Errorf("it ended with %+v", e)
	}
}

// The next daemon, which has another forkd-spawn, takes it over, and ends it.
func TestKilledDaemonsVMMInAJailIsAdopted(t *testing.T) {
	s := openSpawner(t, false)
	p := spawnVMM(t, s)
	ref := p.Ref()
	p.Release()
	s.Close()
	next, err := vmclient.Adopt(t.Context(), ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := next.Status(t.Context()); err != nil || st.State != vmm.StateRunning {
		t.Errorf("status %+v, %v", st, err)
	}
	if err := ref.Check(must(os.Executable())); err != nil {
		t.Error(err)
	}
	next.Release()
	if err := ref.Kill(); err != nil {
		t.Error(err)
	}
	ended(t, next)
}
