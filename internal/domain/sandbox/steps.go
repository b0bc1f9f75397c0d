package sandbox

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// StepCompact is the step recorded in a compacted snapshot. While a compaction runs, it reports these steps:
// StepMemory and one for each disk with layers (snapshot.DiskFile).
const (
	StepCompact = "compact"
	StepMemory  = "memory"
)

type progressKey struct{}

// WithProgress sets a function for a verification to report bytes read and bytes in total. f is called by one
// goroutine at a time.
func WithProgress(ctx context.Context, f func(done, total int64)) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

// Progress returns the function set by WithProgress, or nil.
func Progress(ctx context.Context) func(done, total int64) {
	f, _ := ctx.Value(progressKey{}).(func(done, total int64))
	return f
}

// Names of a derivation's steps, in order. StepWarm and StepQuiesce are shared with creation, StepCapture with
// branch.
const (
	StepFork = "fork"
	StepExec = "exec"
)

// DefaultDeriveTimeout is the limit of a derivation's program. It is longer than DefaultExecTimeout because
// installing packages takes long.
const DefaultDeriveTimeout = 10 * time.Minute

// DeriveRequest asks for a snapshot on top of another one: of a child in which a program has run. At least one of
// Exec and Warm is required.
type DeriveRequest struct {
	Tag   string // of the new snapshot
	Owner string // tenant of the snapshot and the child; empty for the operator
	From  string // the snapshot below it
	Exec  []string
	User  string // Exec's user; if empty, the image's
	// ExecTimeout bounds Exec; 0 means DefaultDeriveTimeout.
	ExecTimeout time.Duration
	// Warm is Python code to run in the warmed interpreter after Exec.
	Warm string
	// WarmTimeout bounds the warm-up; 0 means DefaultWarmTimeout.
	WarmTimeout time.Duration
	// Network is the policy of sandboxes forked from the snapshot without one. If nil, it is From's policy.
	Network *netpolicy.Spec
	// BuildNetwork is the policy while Exec and Warm run. If nil, it is Network.
	BuildNetwork *netpolicy.Spec
	// HostPorts are the host's ports that the caller may name in a policy, its own or inherited.
	HostPorts netpolicy.HostGrant
	// Tap and TapIfAllowed are as in a CreateRequest.
	Tap          string
	TapIfAllowed bool
	// Labels of the snapshot.
	Labels map[string]string
}

// StepCapture is the step that a branch records in its snapshot: all work until the sandbox runs again.
const StepCapture = "capture"

// Names of a creation's steps, in order.
const (
	StepBoot    = "boot"
	StepWarm    = "warm"
	StepQuiesce = "quiesce"
	StepSave    = "save"
)
