package vmproc

import (
	"errors"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func TestADiskLimitNeedsNoCgroup(t *testing.T) {
	s := &Supervisor{}
	if err := s.CheckLimits(sandbox.Limits{DiskMiB: 64}); err != nil {
		t.Errorf("without cgroups: %v", err)
	}
	if err := s.CheckLimits(sandbox.Limits{DiskMiB: 64, CPUs: 1}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("with one that needs them: %v", err)
	}
	if b := (Bounds{Limits: sandbox.Limits{DiskMiB: 64}}); !b.Apart() || treeOf(b).Name != "" {
		t.Error("it can have a shell, or is in a tree")
	}
}

func TestWhoIsAtItsLimitIsNotTheHosts(t *testing.T) {
	m := &VM{}
	for full, want := range map[string]sandbox.Reason{
		"disk 1: no space left on device: its disk limit of 64 MiB is reached": sandbox.ReasonDiskLimit,
		"disk 1: no space left on device":                                      sandbox.ReasonDiskNoRoom,
	} {
		var said *sandbox.Error
		if err := NoRoom("it", full); !errors.As(err, &said) || said.Reason() != want || !errors.Is(err, sandbox.ErrNoSpace) {
			t.Errorf("%s: %v", full, err)
		}
		m.health.health = vmm.Health{Full: full}
		i := m.Describe(sandbox.Info{Status: sandbox.StatusRunning})
		if i.Stall != want {
			t.Errorf("%s: the list has the reason %s", full, i.Stall)
		}
		if onHost := strings.Contains(i.Reason, "on the host"); i.Status != sandbox.StatusStalled || onHost != (want == sandbox.ReasonDiskNoRoom) {
			t.Errorf("it is %s: %s", i.Status, i.Reason)
		}
	}
}
