package sandbox

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// StepCompact is the step in the account of a compacted snapshot. While it is made
// there are steps of its own, StepMemory and one for each disk of layers
// (snapshot.DiskFile).
const (
	StepCompact = "compact"
	StepMemory  = "memory"
)

type progressKey struct{}

// WithProgress has a verification tell how many bytes of all it has read. f is called by one goroutine at a time.
func WithProgress(ctx context.Context, f func(done, total int64)) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

// Progress returns the function of WithProgress; nil if there is none.
func Progress(ctx context.Context) func(done, total int64) {
	f, _ := ctx.Value(progressKey{}).(func(done, total int64))
	return f
}

// Names of a derivation's steps, in order; StepWarm and StepQuiesce are as of a
// creation, StepCapture as of a branch.
const (
	StepFork = "fork"
	StepExec = "exec"
)

// DefaultDeriveTimeout is the limit of a derivation's program: installing
// packages takes longer than what DefaultExecTimeout is for.
const DefaultDeriveTimeout = 10 * time.Minute

// DeriveRequest asks for a snapshot on top of another: of a child in which a
// program has run. At least one of Exec and Warm is given.
type DeriveRequest struct {
	Tag   string // of the new snapshot
	Owner string // of it, and of the child: a tenant; empty: the operator
	From  string // the snapshot below it
	Exec  []string
	User  string // that Exec runs as; empty: the image's
	// ExecTimeout bounds Exec; 0 means DefaultDeriveTimeout.
	ExecTimeout time.Duration
	// Warm is Python code that is run in the warmed interpreter after Exec.
	Warm string
	// WarmTimeout bounds the warm-up; 0 means DefaultWarmTimeout.
	WarmTimeout time.Duration
	// Network is the policy of sandboxes that are forked from the snapshot without one of
	// their own; nil: that of From.
	Network *netpolicy.Spec
	// BuildNetwork is the policy while Exec and Warm run; nil: Network.
	BuildNetwork *netpolicy.Spec
	// HostPorts are the ports of the host that the caller may name in a policy, its own or inherited.
	HostPorts netpolicy.HostGrant
	// Tap and TapIfAllowed are as in a CreateRequest.
	Tap          string
	TapIfAllowed bool
}

// StepCapture is a branch's step in its snapshot's account: all until the sandbox runs again.
const StepCapture = "capture"

// Names of a creation's steps, in order.
const (
	StepBoot    = "boot"
	StepWarm    = "warm"
	StepQuiesce = "quiesce"
	StepSave    = "save"
)
