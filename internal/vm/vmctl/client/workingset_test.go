package client

import (
	"context"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func TestWorkingSetsAreWrittenAndPopulated(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	ctx := context.Background()
	set := vmctltest.File(t, "")
	if r, err := p.WriteWorkingSet(ctx, set); err != nil || r != (vmm.WorkingSetResult{Runs: 2, ReadPages: 3, WrittenPages: 4}) {
		t.Fatalf("write: got %+v, %v", r, err)
	}
	if r, err := p.Populate(ctx, set); err != nil || r != (vmm.WorkingSetResult{Runs: 2, KVM: 5}) {
		t.Fatalf("populate: got %+v, %v", r, err)
	}
	if r, err := PopulateShell(ctx, p, set); err != nil || r != (vmm.WorkingSetResult{Runs: 1}) {
		t.Fatalf("populate a shell: got %+v, %v", r, err)
	}
	if _, err := p.Populate(ctx, vmctltest.File(t, "cold")); err == nil || !strings.Contains(err.Error(), `no working set but "cold"`) {
		t.Fatalf("populate of another file: got %v", err)
	}
}
