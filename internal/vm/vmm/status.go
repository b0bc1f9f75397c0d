package vmm

import (
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// Status is a VMM's account of itself.
type Status struct {
	Version int          `json:"version"` // of the control protocol
	State   State        `json:"state"`
	Shape   vmspec.Shape `json:"shape"`
	CID     uint32       `json:"cid,omitempty"`
	// OverlayGeneration is how often each disk with an overlay file went on in another one.
	OverlayGeneration []int `json:"overlay_generation,omitempty"`
	// Health is the body of the last event of that kind.
	Health Health `json:"health"`
	// Guest is for how long what the host sent over vsock has waited for the
	// guest's answers, summed up, by the VMM's clock.
	Guest time.Duration `json:"guest_ns,omitempty"`
}

// Health is the state of a VM's disks and of its guest's kernel.
type Health struct {
	Seq  int    `json:"seq,omitempty"`  // counts the changes: of two, the one with the larger is newer
	Full string `json:"full,omitempty"` // for what there is no room, if the VM stands still for that
	Lost string `json:"lost,omitempty"` // by what a write was lost, once one was
	// Hang says which vCPU spins in the guest's kernel and at which address, while one does.
	Hang string `json:"hang,omitempty"`
}
