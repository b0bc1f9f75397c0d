package client

import (
	"os"
	"testing"

	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func TestSaveWritesDisks(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	boot(t, p, "kernel")
	if err := p.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := vmctltest.File(t, ""), vmctltest.File(t, "")
	r, err := p.Save(t.Context(), vmm.SaveConfig{Memory: vmctltest.File(t, ""), State: vmctltest.File(t, ""), Disks: []*os.File{a, b}})
	if err != nil || r.DiskBytes != 12 {
		t.Fatalf("got %+v, %v", r, err)
	}
	for i, f := range []*os.File{a, b} {
		if got, err := os.ReadFile(f.Name()); err != nil || string(got) != []string{"disk 0", "disk 1"}[i] {
			t.Errorf("disk %d: got %q, %v", i, got, err)
		}
	}
}
