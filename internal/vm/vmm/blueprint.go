package vmm

import (
	"os"
	"time"

	"github.com/forkd/forkd/internal/store/extent"
)

// BootConfig is what a VM boots.
type BootConfig struct {
	Kernel  *os.File // ELF vmlinux
	Initrd  *os.File // nil: none
	Cmdline string   // of the kernel, whole
	Disks   []Disk   // as many as the shape says
	CID     uint32   // vsock context id, 3 or more
	GenID   [16]byte // VM generation ID
	Net     *os.File // the VM's way to the network; nil: it has none for now
}

// CloseSource closes what a VM reads once, when it boots; disks and network stay open.
func (c BootConfig) CloseSource() { closeAll(c.Kernel, c.Initrd) }

// Close closes all files.
func (c BootConfig) Close() { c.CloseSource(); CloseDisks(c.Disks); closeAll(c.Net) }

// RestoreConfig is the blueprint that a shell is restored from: the same value in
// the daemon, which fills it, and in the machine, which follows it.
type RestoreConfig struct {
	Memory []extent.Extent // later ones map over earlier ones
	State  *os.File        // of vCPUs and devices (docs/inside/formats/vmstate.md)
	Disks  []Disk          // as many as the shape says
	CID    uint32          // vsock context id, 3 or more
	GenID  [16]byte        // new VM generation ID
	Net    *os.File        // the VM's way to the network; nil: it has none for now
	// Prepare: nobody has asked for this VM yet. Until Resume has returned it ends with its daemon, as a shell does.
	// Without a Gate it is left to Resume.
	Prepare bool
	Gate    *os.File // start the vCPUs when this gate opens (package startgate); nil: at once
	Watch   bool     // so that WriteWorkingSet is exact; costs the guest some time
}

// CloseSource closes what a VM needs no longer once it is restored; disks and network stay open.
func (c RestoreConfig) CloseSource() {
	closeAll(c.State, c.Gate)
	CloseExtents(c.Memory)
}

// Close closes all files.
func (c RestoreConfig) Close() { c.CloseSource(); CloseDisks(c.Disks); closeAll(c.Net) }

// RestoreResult tells where the time of a restore went.
type RestoreResult struct {
	Map   time.Duration `json:"map_ns"`   // mapping the layers
	State time.Duration `json:"state_ns"` // loading CPU and device state
}

// ResumeResult tells when a VM began to run.
type ResumeResult struct {
	// RunningAt is when the last vCPU was about to enter the guest, in
	// nanoseconds of CLOCK_MONOTONIC.
	RunningAt int64 `json:"running_at_ns"`
}

// WorkingSetResult tells what a working set has, or what of one was populated.
type WorkingSetResult struct {
	Runs         int           `json:"runs"`
	ReadPages    int64         `json:"read_pages"`
	WrittenPages int64         `json:"written_pages"`
	Map          time.Duration `json:"map_ns,omitempty"` // mapping the pages in the VMM
	KVM          time.Duration `json:"kvm_ns,omitempty"` // and then in the guest, which stands still meanwhile
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
