package client

import (
	"os"
	"testing"

	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// The file of the digests is separate from the disks, and is sent only on request.
func TestDigestsHaveAFileOfTheirOwn(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	boot(t, p, "kernel")
	for _, disks := range []int{0, 2} {
		for _, asked := range []bool{true, false} {
			var digest *os.File
			if asked {
				digest = vmctltest.File(t, "")
			}
			var into []*os.File
			for range disks {
				into = append(into, vmctltest.File(t, ""))
			}
			c := vmm.CaptureConfig{Memory: vmctltest.File(t, ""), State: vmctltest.File(t, ""), Index: vmctltest.File(t, ""), Digest: digest, Disks: into}
			if _, err := p.Capture(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			checkDigest(t, digest, disks)
			if asked {
				digest = vmctltest.File(t, "")
			}
			if _, err := p.Save(t.Context(), vmm.SaveConfig{Memory: vmctltest.File(t, ""), State: vmctltest.File(t, ""), Digest: digest, Disks: into}); err != nil {
				t.Fatal(err)
			}
			checkDigest(t, digest, disks)
		}
	}
}

func checkDigest(t *testing.T, f *os.File, disks int) {
	t.Helper()
	if f == nil {
		return
	}
	want := "digest beside " + string(rune('0'+disks)) + " disks"
	if b, err := os.ReadFile(f.Name()); err != nil || string(b) != want {
		t.Errorf("with %d disks it holds %q, %v", disks, b, err)
	}
}
