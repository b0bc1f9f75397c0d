package sandbox

import "github.com/forkd/forkd/internal/net/netpolicy"

// PromoteRequest asks to put a sandbox in the place of one that it descends from.
type PromoteRequest struct {
	Child string // the sandbox to promote, running or paused
	// Place is the sandbox that loses its place. If empty, it is the nearest one that Child was forked from.
	Place string
	// Discard drops the old state of Place. Otherwise a snapshot keeps it.
	Discard bool
	Tag     string // of that snapshot; if empty, derived from the id of Place and a number
	Owner   string // tenant of that snapshot; if empty, the sandbox's
	// HostPorts are the host's ports that the caller may name in a policy. The snapshot inherits that of Place.
	HostPorts netpolicy.HostGrant
}

// Promotion is the result of a promotion.
type Promotion struct {
	Info     Info   // the promoted sandbox, in its new place
	Was      string // its id until then, which names no sandbox now
	KeptIn   string // tag of the snapshot with the old state; empty if it was discarded
	KeptHash string // its content hash
}
