package admission

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// Need holds the host resources of one VM.
type Need struct {
	// Memory and Disk are the bytes it takes immediately. They count until its part of the grant is
	// released; from then on the host's own figures include them.
	Memory, Disk int64
	// Files are descriptors of the daemon, Threads are its VMM's.
	Files, Threads int64
	Promised       Promised // checked against the overcommit limits
}

// Promised holds the maximum resources that VMs may take during their lifetime.
type Promised struct {
	VMs          int   // number of VMs
	Memory, Disk int64 // bytes
}

// Add returns the sum.
func (p Promised) Add(q Promised) Promised {
	return Promised{VMs: p.VMs + q.VMs, Memory: p.Memory + q.Memory, Disk: p.Disk + q.Disk}
}

func (p Promised) times(n int) Promised {
	return Promised{VMs: n * p.VMs, Memory: int64(n) * p.Memory, Disk: int64(n) * p.Disk}
}

// A VM's resources besides memory, rounded up from measured counts.
const (
	// vmFiles counts the control socket, a process descriptor, and connections to its agent.
	vmFiles   = 4
	vmThreads = sandbox.VMMThreads
	// vmDisk is a child's space in the store before its guest writes: its overlay file, and the
	// first blocks of a waking guest.
	vmDisk = 256 << 10
)

// PromisedTo returns the maximum resources of a sandbox: all of its guest's memory and disk,
// reduced by its limits.
func PromisedTo(shape vmspec.Shape, disk int64, l sandbox.Limits) Promised {
	return Promised{VMs: 1, Memory: least(shape.MemoryBytes(), int64(l.MemoryMiB)<<20),
		Disk: least(disk, int64(l.DiskMiB)<<20)}
}

// least returns the smaller of v and limit. A limit of 0 means no limit.
func least(v, limit int64) int64 {
	if limit > 0 {
		return min(v, limit)
	}
	return v
}

// Child returns the need of a child of a snapshot. memory is the memory of an idle child, disk the
// size of its writable disks.
func Child(memory int64, shape vmspec.Shape, disk int64, l sandbox.Limits) Need {
	n := Shell(memory, shape)
	n.Disk, n.Promised = vmDisk, PromisedTo(shape, disk, l)
	return n
}

// Shell returns the need of a VM without a guest, or of a VM that replaces another. It adds no
// promise beyond the existing ones.
func Shell(memory int64, shape vmspec.Shape) Need {
	return Need{Memory: memory, Files: vmFiles, Threads: int64(shape.VCPUs) + vmThreads}
}

// Parent returns the need of a booting VM, which may touch all of its memory.
func Parent(shape vmspec.Shape, disk int64) Need {
	return Child(shape.MemoryBytes(), shape, disk, sandbox.Limits{})
}
