package live

import (
	"testing"

	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// TestDebiansDrivers makes Debian's own drivers use every device in one guest, then clones it.
func TestDebiansDrivers(t *testing.T) {
	paths, open := guestDisks(t)
	v := bootServe(t, vmspec.Shape{MemoryMiB: 256, VCPUs: 2, Disks: len(paths)}, dialTestHost, open()...)
	t.Run("vsock", func(t *testing.T) { testVsock(t, v) })
	t.Run("disks", func(t *testing.T) { testDisks(t, v, paths) })
	t.Run("entropy", func(t *testing.T) { testEntropy(t, v) })
	t.Run("clones", func(t *testing.T) { testClones(t, v, open) })
}
