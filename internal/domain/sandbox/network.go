package sandbox

import (
	"context"
	"os"
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Network is what a sandbox may reach, and by which wire.
type Network struct {
	// Asked is the policy of the request, else that of the snapshot.
	Asked netpolicy.Spec `json:"asked,omitzero"`
	// HostPorts are the ports of the host that its policy may name: those of the caller that set it.
	// A record without them grants none.
	HostPorts netpolicy.HostGrant `json:"host_ports,omitzero"`
	// Effective is what HostPorts and the operator's ceiling leave of it: this is enforced.
	Effective netpolicy.Spec `json:"effective,omitzero"`
	// Cut are the parts that were taken, each with its reason, for people.
	Cut []string `json:"cut,omitempty"`
	// Wire is the name of its VM at forkd-net; empty: it has no wire, and needs none
	// while nothing is allowed.
	Wire string `json:"wire,omitempty"`
	// Tap is the operator's tap that it has instead of a policy; empty: none. Effective is
	// none then: what is reachable there is not forkd's to say.
	Tap string `json:"tap,omitempty"`
	// Warning says why it has less than Effective; in what requests give.
	Warning string `json:"-"`
}

// NetworkRequest asks for another policy of a running sandbox.
type NetworkRequest struct {
	Policy netpolicy.Spec
	// HostPorts are the ports of the host that the caller may name in a policy.
	HostPorts netpolicy.HostGrant
}

// Policy is the name of what is enforced.
func (n Network) Policy() PolicyName {
	if n.Tap != "" {
		return PolicyTap
	}
	return NameOf(n.Effective)
}

// PolicyName tells policies apart at a glance.
type PolicyName string

// Names of policies.
const (
	PolicyNone   PolicyName = "none"   // nothing is allowed: whatever the guest tries is refused at once
	PolicyPublic PolicyName = "public" // all public addresses
	PolicyCustom PolicyName = "custom" // what rules say
	PolicyTap    PolicyName = "tap"    // a network of the operator's
)

// NameOf is the name of a policy.
func NameOf(s netpolicy.Spec) PolicyName {
	switch {
	case s.Default != netpolicy.Public && len(s.Allow) == 0:
		return PolicyNone
	case s.Default == netpolicy.Public && len(s.Deny) == 0:
		return PolicyPublic
	}
	return PolicyCustom
}

// WithoutSecrets is the policy without the headers that the host sets: no snapshot and
// no other sandbox inherits those.
func WithoutSecrets(s netpolicy.Spec) netpolicy.Spec {
	s.Headers = nil
	return s
}

// NetBinding is a VM that forkd-net is to serve.
type NetBinding struct {
	VM      string // its name at forkd-net, never given twice
	Sandbox string // whom the audit log names
	Tenant  string // that it belongs to, among whose sandboxes its part is divided; empty: the operator
	Tag     string // of the snapshot that it is forked from; empty: it boots
	Spec    netpolicy.Spec
	Tree    NetTree // that it is in; the zero value: that has no limit
	// Facts are names that its guest has resolved already: those of the VM that it is a
	// clone of. It can read them only; who binds many may share one list.
	Facts []netpolicy.Exported
	// Handover: the VMM cannot connect a socket to anywhere, so that it may be handed connected ones.
	Handover bool
	Wire     *os.File // forkd-net's end; stays the caller's
}

// NetTree is the bandwidth that the sandboxes of a tree of forks have together.
type NetTree struct {
	Root           string // of the tree
	BytesPerSecond int64  // each way
}

// NetPort is the process forkd-net as the engine uses it. Its methods are safe for
// concurrent use.
type NetPort interface {
	// Bind has it serve VMs, all or none. It returns a certificate for each, in PEM, that its
	// guest has to trust as headers are set on its requests; empty: it has to trust none.
	Bind(ctx context.Context, vms []NetBinding) (cas []string, err error)
	// Update changes a VM's policy: what is no longer allowed has been cut when it returns. The
	// certificate is as of Bind.
	Update(ctx context.Context, vm string, spec netpolicy.Spec) (ca string, err error)
	// Release ends all that a VM has open, and forgets it. One that is not there is no error.
	Release(ctx context.Context, vm string) error
	// List names the VMs that it serves.
	List(ctx context.Context) ([]string, error)
	// Traffic is what each VM that it serves has had.
	Traffic(ctx context.Context) (map[string]NetUse, error)
	// Facts are names that a VM's guest has resolved, for its clones.
	Facts(ctx context.Context, vm string) ([]netpolicy.Exported, error)
	// Flows are a VM's live ones.
	Flows(ctx context.Context, vm string) ([]NetFlow, error)
	// Log calls write with audit lines of a VM, each one JSON object without a line's
	// end: of the last refusals, and with follow all that come, until ctx ends.
	Log(ctx context.Context, vm string, follow bool, write func(line []byte) error) error
	// Done is closed when the process, or the connection to it, has ended.
	Done() <-chan struct{}
	// Close lets go of the process, which runs on.
	Close() error
}

// NetUse is what a VM has had of its network since it was made, in bytes. Taps are not counted.
type NetUse struct {
	In, Out int64 // to the guest and from it
	Limit   int64 // bytes a second each way; 0: none
}

// NetFlow is one connection of a sandbox.
type NetFlow struct {
	Protocol string // tcp, udp or echo
	Guest    string // address and port in the guest
	Far      string // address and port that it asked for
	Name     string // that it resolved, or named itself; empty: none is known
	Rule     string // that decided; empty: the default did
	Sent     int64  // bytes from the guest
	Received int64  // bytes to it
	Began    time.Time
}

// Taps are the operator's taps as the engine uses them.
type Taps interface {
	// Allows reports whether sandboxes may have a tap.
	Allows(name string) bool
	// Open opens one that is there. The error is EBUSY if somebody has it.
	Open(name string) (*os.File, error)
}

// NetConnect connects to forkd-net and starts it if it does not run.
type NetConnect func(ctx context.Context) (NetPort, error)
