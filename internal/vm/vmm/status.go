package vmm

import (
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// Status is the VMM's report about itself.
type Status struct {
	Version int          `json:"version"`       // of the control protocol
	State   State        `json:"state"`         // one of the State constants
	Shape   vmspec.Shape `json:"shape"`         // fixed at the start of the process
	CID     uint32       `json:"cid,omitempty"` // vsock context id of the guest; 0 before boot or restore
	// OverlayGeneration counts, for each disk with an overlay file, how often it switched to a new
	// one.
	OverlayGeneration []int `json:"overlay_generation,omitempty"`
	// Health is the body of the last health event.
	Health Health `json:"health"`
	// Guest is the total time for which the host's vsock data has waited for the guest's answers,
	// by the VMM's clock.
	Guest time.Duration `json:"guest_ns,omitempty"`
}

// Health is the state of a VM's disks and of its guest's kernel.
type Health struct {
	Seq  int    `json:"seq,omitempty"`  // counts the changes; the higher value is newer
	Full string `json:"full,omitempty"` // why the VM is stalled: the error of a disk without room
	Lost string `json:"lost,omitempty"` // the cause of the first lost write, if any
	// Hang names the vCPU spinning in the guest's kernel, and the address, while it does.
	Hang string `json:"hang,omitempty"`
}
