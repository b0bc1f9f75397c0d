package client

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func spawnConfined(t *testing.T, mode seccomp.Mode) *Process {
	t.Helper()
	if err := seccomp.Available(); err != nil {
		t.Skip(err)
	}
	p, err := spawnAs(t, SpawnConfig{Shape: vmspec.Shape{MemoryMiB: 64, VCPUs: behaveWell}, Seccomp: mode})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A confined process serves its daemon normally, and is killed for a call that no VMM makes. The
// next daemon knows the confinement from the journal, whatever the process reports then.
func TestAConfinedProcess(t *testing.T) {
	ctx := t.Context()
	first := spawnConfined(t, seccomp.On)
	if c := ConfinementOf(first); !c.Confined || len(c.Why) > 1000 {
		t.Errorf("it is %+v", c)
	}
	boot(t, first, "kernel")
	journal, err := json.Marshal(first.Ref())
	if err != nil {
		t.Fatal(err)
	}
	first.Release()
	second := adopt(t, ctx, journal)
	if !ConfinementOf(second).Confined {
		t.Error("the second daemon does not know that it is confined")
	}
	if err := second.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if err := second.OpenNet(ctx, nil); err == nil {
		t.Error("it made a socket")
	}
	waitDone(t, first)
	if e := first.Exit(); e.Kind != vmm.ExitKilled || !strings.Contains(e.Reason, "filter of system calls") {
		t.Errorf("it ended with %+v", e)
	}
}

func adopt(t *testing.T, ctx context.Context, journal []byte) *Process {
	t.Helper()
	var ref Ref
	if err := json.Unmarshal(journal, &ref); err != nil {
		t.Fatal(err)
	}
	p, err := Adopt(ctx, ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}

func TestAProcessThatIsNotConfined(t *testing.T) {
	for _, mode := range []seccomp.Mode{"", seccomp.Off, seccomp.Log} {
		p := spawnConfined(t, mode)
		boot(t, p, "kernel")
		if c := ConfinementOf(p); c.Confined || p.Ref().Confined {
			t.Errorf("mode %q: it is %+v", mode, c)
		}
		if err := p.OpenNet(t.Context(), nil); err != nil {
			t.Errorf("mode %q: it ended with %v", mode, err)
		}
	}
}
