package sandbox

import (
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// MaxGroupCopies is the largest N of one GroupForkRequest.
const MaxGroupCopies = 15

// GroupForkRequest asks for copies of all running sandboxes of a private network, all of one instant.
type GroupForkRequest struct {
	Owner   string // tenant of the network, its sandboxes and the copies; empty for the operator
	Network string // its name
	N       int    // copies, 1 to MaxGroupCopies
	// Prefix begins the names of the copies' networks: PREFIX-1 and so on, without those that exist. If empty, it is
	// Network.
	Prefix string
	// HostPorts are the host's ports that the caller may name in a policy, its own or inherited.
	HostPorts netpolicy.HostGrant
	// Admit, if set, is called with the number of the copies' sandboxes and the MiB of their guests' memory, before
	// anything is made. release is called when the sandboxes are listed, or will not be.
	Admit func(sandboxes, memoryMiB int) (release func(), err error)
}

// GroupCopy is one copy of a group. It has all of its sandboxes, or it failed.
type GroupCopy struct {
	Network   string // name of its private network; empty after an error
	NetworkID string
	Sandboxes []Info // by alias
	Err       error
}

// GroupForkResult is the result of a GroupForkRequest.
type GroupForkResult struct {
	Copies []GroupCopy
	// Pause is the longest pause of a sandbox of the group.
	Pause time.Duration
	Total time.Duration // of the request
}
