package vmm

import (
	"os"
	"time"

	"github.com/forkd/forkd/internal/store/extent"
)

// BootConfig describes a VM to boot.
type BootConfig struct {
	Kernel  *os.File // ELF vmlinux
	Initrd  *os.File // may be nil
	Cmdline string   // the whole kernel command line
	Disks   []Disk   // one per disk of the shape
	CID     uint32   // vsock context id, 3 or more
	GenID   [16]byte // VM generation ID
	Net     *os.File // the VM's wire; nil if not connected yet
}

// CloseSource closes the files read only during boot. Disks and network stay open.
func (c BootConfig) CloseSource() { closeAll(c.Kernel, c.Initrd) }

// Close closes all files.
func (c BootConfig) Close() { c.CloseSource(); CloseDisks(c.Disks); closeAll(c.Net) }

// RestoreConfig describes how to restore a shell. The daemon fills it in and the machine follows
// it.
type RestoreConfig struct {
	Memory []extent.Extent // later extents map over earlier ones
	State  *os.File        // state of vCPUs and devices (docs/inside/formats/vmstate.md)
	Disks  []Disk          // one per disk of the shape
	CID    uint32          // vsock context id, 3 or more
	GenID  [16]byte        // new VM generation ID
	Net    *os.File        // the VM's wire; nil if not connected yet
	// Prepare marks a VM restored ahead of demand. Until Resume has returned it ends with its
	// daemon, as a shell does. Without a Gate, Resume starts it.
	Prepare bool
	Gate    *os.File // start the vCPUs when this gate opens (package startgate); if nil, immediately
	Watch   bool     // makes WriteWorkingSet exact, at some cost to the guest
	// KeepMembers spares the guest's connections to other members of its private network from the reset: these
	// members are copies of the same instant.
	KeepMembers bool
}

// CloseSource closes the files no longer needed after the restore. Disks and network stay open.
func (c RestoreConfig) CloseSource() {
	closeAll(c.State, c.Gate)
	CloseExtents(c.Memory)
}

// Close closes all files.
func (c RestoreConfig) Close() { c.CloseSource(); CloseDisks(c.Disks); closeAll(c.Net) }

// RestoreResult holds the durations of a restore's phases.
type RestoreResult struct {
	Map   time.Duration `json:"map_ns"`   // mapping the layers
	State time.Duration `json:"state_ns"` // loading CPU and device state
}

// ResumeResult holds the time at which a VM began to run.
type ResumeResult struct {
	// RunningAt is the moment before the last vCPU entered the guest, in nanoseconds of
	// CLOCK_MONOTONIC.
	RunningAt int64 `json:"running_at_ns"`
}

// WorkingSetResult holds the size of a working set, or of its populated part.
type WorkingSetResult struct {
	Runs         int           `json:"runs"`             // contiguous ranges of pages
	ReadPages    int64         `json:"read_pages"`       // pages that the guest only reads
	WrittenPages int64         `json:"written_pages"`    // pages that the guest writes
	Map          time.Duration `json:"map_ns,omitempty"` // mapping the pages in the VMM
	KVM          time.Duration `json:"kvm_ns,omitempty"` // mapping them in the guest, which is paused meanwhile
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
