package admission

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// Need is what one VM takes of its host.
type Need struct {
	// Memory and Disk are bytes that it takes at once, and until its part of the grant is
	// released: then the host's own figures have them.
	Memory, Disk int64
	// Files are descriptors of the daemon, Threads are its VMM's.
	Files, Threads int64
	Promised       Promised
}

// Promised is what VMs could come to take while they live.
type Promised struct {
	VMs          int
	Memory, Disk int64 // bytes
}

// Add is the sum.
func (p Promised) Add(q Promised) Promised {
	return Promised{VMs: p.VMs + q.VMs, Memory: p.Memory + q.Memory, Disk: p.Disk + q.Disk}
}

func (p Promised) times(n int) Promised {
	return Promised{VMs: n * p.VMs, Memory: int64(n) * p.Memory, Disk: int64(n) * p.Disk}
}

// What a VM takes beside memory, on the safe side of what was counted.
const (
	// vmFiles: the control socket, a process descriptor, and connections to its agent.
	vmFiles   = 4
	vmThreads = sandbox.VMMThreads
	// vmDisk is what a child takes of the store before its guest writes: its overlay file, and the
	// first blocks of a guest that wakes.
	vmDisk = 256 << 10
)

// PromisedTo is what a sandbox could come to take: all of its guest's memory and disk, or what
// its limits leave of that.
func PromisedTo(shape vmspec.Shape, disk int64, l sandbox.Limits) Promised {
	return Promised{VMs: 1, Memory: least(shape.MemoryBytes(), int64(l.MemoryMiB)<<20),
		Disk: least(disk, int64(l.DiskMiB)<<20)}
}

// least is v, or the limit if there is one and it is less.
func least(v, limit int64) int64 {
	if limit > 0 {
		return min(v, limit)
	}
	return v
}

// Child is what a child of a snapshot needs: memory is what an idle one takes, disk the size of
// its writable disks.
func Child(memory int64, shape vmspec.Shape, disk int64, l sandbox.Limits) Need {
	n := Shell(memory, shape)
	n.Disk, n.Promised = vmDisk, PromisedTo(shape, disk, l)
	return n
}

// Shell is what a VM without a guest needs, and one that takes the place of another: it is
// promised nothing that is not promised already.
func Shell(memory int64, shape vmspec.Shape) Need {
	return Need{Memory: memory, Files: vmFiles, Threads: int64(shape.VCPUs) + vmThreads}
}

// Parent is what a VM needs that boots: it may touch all of its memory.
func Parent(shape vmspec.Shape, disk int64) Need {
	return Child(shape.MemoryBytes(), shape, disk, sandbox.Limits{})
}
