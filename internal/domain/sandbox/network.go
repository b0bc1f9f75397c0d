package sandbox

import (
	"context"
	"net/netip"
	"os"
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Network is a sandbox's network policy and its wire.
type Network struct {
	// Asked is the policy of the request, or else the snapshot's.
	Asked netpolicy.Spec `json:"asked,omitzero"`
	// HostPorts are the host's ports that its policy may name, as granted to the caller who set it. A record
	// without them grants none.
	HostPorts netpolicy.HostGrant `json:"host_ports,omitzero"`
	// Effective is the enforced policy: Asked, reduced by HostPorts and the operator's ceiling.
	Effective netpolicy.Spec `json:"effective,omitzero"`
	// Cut lists the removed parts of Asked, each with its reason, for people.
	Cut []string `json:"cut,omitempty"`
	// Wire is the name of its VM at forkd-net. If empty, it has no wire; it does not need one while its policy
	// allows no traffic.
	Wire string `json:"wire,omitempty"`
	// Tap is the operator's tap used instead of a policy, or empty. Effective is none then: the operator controls
	// the tap's network.
	Tap string `json:"tap,omitempty"`
	// Member is its place in a private network. May be nil.
	Member *Member `json:"member,omitempty"`
	// Warning is why it has less than Effective. Only requests set it.
	Warning string `json:"-"`
}

// NetJoin asks for a place in a private network.
type NetJoin struct {
	Network string // name of a network of the sandbox's owner
	Alias   string // the sandbox's name in it; empty for its id
}

// Member is a sandbox's place in a private network. It stays over a pause and a rollback. Branches and forks
// have no share in it.
type Member struct {
	Network   string     `json:"network"`    // name
	NetworkID string     `json:"network_id"` // as in privatenets.Network
	Alias     string     `json:"alias"`      // others find it as ALIAS.forkd.internal
	Addr      netip.Addr `json:"addr"`       // in the eyes of the others
}

// MemberOf returns a function for the sandbox's place in a private network. May be nil.
func (n Network) MemberOf() func(string) *Member {
	if n.Member == nil {
		return nil
	}
	return func(string) *Member { return n.Member }
}

// NetworkRequest asks to change a running sandbox's policy.
type NetworkRequest struct {
	Policy netpolicy.Spec
	// HostPorts are the host's ports that the caller may name in a policy.
	HostPorts netpolicy.HostGrant
}

// Policy returns the name of the enforced policy.
func (n Network) Policy() PolicyName {
	if n.Tap != "" {
		return PolicyTap
	}
	return NameOf(n.Effective)
}

// PolicyName summarizes a policy.
type PolicyName string

// Names of policies.
const (
	PolicyNone   PolicyName = "none"   // no traffic is allowed: every attempt is refused immediately
	PolicyPublic PolicyName = "public" // all public addresses
	PolicyCustom PolicyName = "custom" // set by rules
	PolicyTap    PolicyName = "tap"    // an operator's network
)

// NameOf returns the name of a policy.
func NameOf(s netpolicy.Spec) PolicyName {
	switch {
	case s.Default != netpolicy.Public && len(s.Allow) == 0:
		return PolicyNone
	case s.Default == netpolicy.Public && len(s.Deny) == 0 && s.Proxy == nil && len(s.Sign) == 0:
		return PolicyPublic
	}
	return PolicyCustom
}

// WithoutSecrets returns the policy without literal headers and passwords. Snapshots and other sandboxes do not
// inherit them. They inherit references to secrets, which contain none.
func WithoutSecrets(s netpolicy.Spec) netpolicy.Spec { return s.ReferencesOnly() }

// NetBinding describes a VM to be served by forkd-net.
type NetBinding struct {
	VM      string // its name at forkd-net; names are not reused
	Sandbox string // named in the audit log
	Tenant  string // its sandboxes divide its part of forkd-net; empty for the operator
	Tag     string // snapshot it is forked from; empty if it boots
	Spec    netpolicy.Spec
	Member  *Member // its place in a private network; may be nil
	Tree    NetTree // zero value if its tree has no limit
	// Facts are the names its guest has already resolved: the ones of the VM it was cloned from. They are
	// read-only, so several bindings may share one list.
	Facts []netpolicy.Exported
	// Handover means that the VMM cannot connect sockets anywhere, so that it may be given connected ones.
	Handover bool
	Wire     *os.File // forkd-net's end; the caller still owns it
}

// NetTree is the bandwidth shared by the sandboxes of a tree.
type NetTree struct {
	Root           string // of the tree
	BytesPerSecond int64  // in each direction
}

// NetPort is the engine's interface to forkd-net. Its methods are safe for concurrent use.
type NetPort interface {
	// Bind makes it serve all VMs, or none on error. It returns a PEM certificate for each VM, which the guest
	// has to trust because headers are set on its requests. The certificate is empty if no headers are set.
	Bind(ctx context.Context, vms []NetBinding) (cas []string, err error)
	// Update changes a VM's policy. When it returns, flows no longer allowed have been cut. The certificate is as
	// in Bind.
	Update(ctx context.Context, vm string, spec netpolicy.Spec) (ca string, err error)
	// Release ends all of a VM's flows and forgets the VM. Releasing an unknown VM is no error.
	Release(ctx context.Context, vm string) error
	// List returns the names of the served VMs.
	List(ctx context.Context) ([]string, error)
	// Traffic returns the traffic of each served VM.
	Traffic(ctx context.Context) (map[string]NetUse, error)
	// Facts returns the names that a VM's guest has resolved, for its clones.
	Facts(ctx context.Context, vm string) ([]netpolicy.Exported, error)
	// Flows returns a VM's live flows.
	Flows(ctx context.Context, vm string) ([]NetFlow, error)
	// Log calls write with a VM's audit lines, each one JSON object without a newline: the last refusals and,
	// with follow, all new lines until ctx ends.
	Log(ctx context.Context, vm string, follow bool, write func(line []byte) error) error
	// Done is closed when the process or the connection to it has ended.
	Done() <-chan struct{}
	// Close closes the connection. The process keeps running.
	Close() error
}

// NetUse is a VM's network traffic in bytes since it was created. Taps are not counted.
type NetUse struct {
	In, Out int64 // to the guest, from the guest
	Limit   int64 // bytes per second in each direction; 0 if unlimited
}

// NetFlow is one connection of a sandbox.
type NetFlow struct {
	Protocol string // tcp, udp or echo
	Guest    string // address and port in the guest
	Far      string // address and port that the guest asked for
	Name     string // resolved or named by the guest; empty if unknown
	Rule     string // the deciding rule; empty for the default
	Sent     int64  // bytes from the guest
	Received int64  // bytes to it
	Began    time.Time
}

// Taps is the engine's interface to the operator's taps.
type Taps interface {
	// Allows reports whether sandboxes may use a tap.
	Allows(name string) bool
	// Open opens an existing tap. It returns EBUSY if the tap is in use.
	Open(name string) (*os.File, error)
}

// NetConnect connects to forkd-net. It starts forkd-net if it does not run.
type NetConnect func(ctx context.Context) (NetPort, error)
