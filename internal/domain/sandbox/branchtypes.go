package sandbox

import (
	"time"

	"github.com/forkd/forkd/internal/leaf/retention"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// BranchMode selects how a branch captures memory.
type BranchMode string

const (
	// BranchLive copies in rounds while the guest runs, and pauses it only for the last written pages.
	BranchLive BranchMode = "live"
	// BranchDiff pauses the guest and copies all pages that differ from its snapshot.
	BranchDiff BranchMode = "diff"
	// BranchFull is like BranchLive, but the snapshot holds all of the memory and depends on no other snapshot.
	BranchFull BranchMode = "full"
)

// BranchRequest asks for a snapshot of a running sandbox. The sandbox keeps running.
type BranchRequest struct {
	SandboxID string
	Owner     string     // tenant of the new snapshot; if empty, the sandbox's
	Tag       string     // of the new snapshot; if empty, derived from the sandbox's id and a number
	Mode      BranchMode // if empty, BranchLive
	// MaxPause limits the guest's pause; 0 sets no limit. If the limit cannot be kept, the branch makes no change
	// and its error reports the pause it would have needed.
	MaxPause time.Duration
	// N is the number of children that the same call forks from the new snapshot. It may be 0.
	N int
	// Env and Life apply to each child, as in a ForkRequest.
	Env map[string]string
	// Secrets are given to each child, as in a ForkRequest.
	Secrets []SecretRef
	Life    Life
	// Labels override the sandbox's, which the snapshot and the children inherit.
	Labels map[string]string
	// Force branches the sandbox even if its disk has lost writes.
	Force bool
	// NoWait returns as soon as the sandbox runs again. The snapshot is listed as writing until it is ready. If
	// writing fails, it is listed as failed with the reason, until it is deleted. A fork from it waits. NoWait
	// cannot be combined with N.
	NoWait bool

	// Network is the policy of the children, and of sandboxes forked from the snapshot without a policy. If nil,
	// it is the sandbox's policy without the headers set by the host.
	Network *netpolicy.Spec
	// HostPorts are the host's ports that the caller may name in a policy, its own or inherited.
	HostPorts netpolicy.HostGrant

	// Transient marks a snapshot whose tag no client asked for. It is deleted when no snapshot depends on it and
	// no sandbox runs from it.
	Transient bool
	// Internal marks a snapshot for the daemon's own use, such as a template's layer. The default rules of retention
	// do not apply to it.
	Internal bool
}

// Children returns the request to fork the branch's children. The Tag must be set. The children do not get the rules
// that say how long the snapshot is kept: their own snapshots would inherit them.
func (r BranchRequest) Children() ForkRequest {
	return ForkRequest{Tag: r.Tag, N: r.N, Owner: r.Owner, Env: r.Env, Secrets: r.Secrets, Network: r.Network,
		HostPorts: r.HostPorts, Life: r.Life, Labels: retention.Without(r.Labels)}
}

// BranchResult is the result of a branch.
type BranchResult struct {
	Tag      string
	Snapshot SnapshotInfo // its state when the call returns
	Pause    time.Duration
	// Mechanism is how writes during the capture were found: "wp-async" (userfaultfd), or "none" if the guest was
	// paused throughout.
	Mechanism   string
	Rounds      int   // copying rounds while the guest ran
	Bytes       int64 // of memory in the new snapshot's file
	PausedBytes int64 // part of Bytes that was copied during the pause
	Total       time.Duration
	// AfterResume is the time from the sandbox's resume to the call's return.
	AfterResume time.Duration
	Fork        *ForkResult // the children; nil if N is 0
}
