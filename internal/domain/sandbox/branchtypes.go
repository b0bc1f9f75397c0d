package sandbox

import (
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// BranchMode is how a branch captures memory.
type BranchMode string

const (
	// BranchLive copies while the guest runs, round after round, and pauses it
	// only for what it wrote last.
	BranchLive BranchMode = "live"
	// BranchDiff pauses the guest while everything that differs from its
	// snapshot is copied.
	BranchDiff BranchMode = "diff"
	// BranchFull is like BranchLive, and the snapshot depends on no other: it
	// holds all of the memory.
	BranchFull BranchMode = "full"
)

// BranchRequest asks for a snapshot of a running sandbox, which goes on.
type BranchRequest struct {
	SandboxID string
	Owner     string     // of the new snapshot: a tenant; empty: the sandbox's
	Tag       string     // of the new snapshot; empty: one is made of the sandbox's id and a number
	Mode      BranchMode // empty: live
	// MaxPause is the longest pause that the guest may see; 0: no limit. If it
	// cannot be kept, nothing is done and the error says what it would have taken.
	MaxPause time.Duration
	// N children are forked from the new snapshot by the same call; 0: none.
	N int
	// Env and Life are of each child, as in a ForkRequest.
	Env  map[string]string
	Life Life
	// Force branches it even if its disk has lost writes.
	Force bool
	// NoWait returns when the sandbox runs again. The snapshot is listed as
	// writing until it is ready, or failed with the reason until it is deleted. A
	// fork from it waits. Not with N.
	NoWait bool

	// Network is the policy of sandboxes that are forked from the snapshot without one of
	// their own, and of the children; nil: the sandbox's, without the headers that the host sets.
	Network *netpolicy.Spec
	// HostPorts are the ports of the host that the caller may name in a policy, its own or inherited.
	HostPorts netpolicy.HostGrant

	// Transient marks a snapshot that nobody asked for by its tag: it goes when
	// nothing is built on it and nothing runs from it any more.
	Transient bool
}

// Children is how the children of a branch are forked, when its Tag is known.
func (r BranchRequest) Children() ForkRequest {
	return ForkRequest{Tag: r.Tag, N: r.N, Owner: r.Owner, Env: r.Env, Network: r.Network, HostPorts: r.HostPorts,
		Life: r.Life}
}

// BranchResult is what a branch did.
type BranchResult struct {
	Tag      string
	Snapshot SnapshotInfo // as it is when the call returns
	Pause    time.Duration
	// Mechanism is how writes during the capture were found: "wp-async"
	// (userfaultfd), or "none" where the guest stood still.
	Mechanism   string
	Rounds      int   // of copying while the guest ran
	Bytes       int64 // of memory in the new snapshot's own file
	PausedBytes int64 // of them copied during the pause
	Total       time.Duration
	// AfterResume is from the sandbox's running again to the call's return.
	AfterResume time.Duration
	Fork        *ForkResult // the children; nil with N 0
}
