package netd

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netproxy"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/net/upstream"
)

// Rules creates the judge of a VM.
type Rules interface {
	New(b control.Binding) (Judge, error)
}

// Judge decides about one VM's flows and names, and stores which names its guest has resolved. It
// is called concurrently.
type Judge interface {
	// Flow decides about an address before it is dialed.
	Flow(q Question) Verdict
	// Name decides about a name read from a flow to a port, before it is resolved.
	Name(name string, port uint16) Verdict
	// Member decides about a flow to another member of the guest's private network.
	Member(name string, p netwire.Protocol, port uint16) Verdict
	// Attested reports whether our own resolver has answered the guest that name has addr.
	Attested(name string, addr netip.Addr) bool
	// Resolve resolves a name that Name has allowed.
	Resolve(ctx context.Context, name string) ([]netip.Addr, error)
	// DNS answers a guest's query. If it returns nil, there is no answer.
	DNS(ctx context.Context, query []byte, tcp bool) []byte
	// Limits returns the limits of the policy, without zeros.
	Limits() netpolicy.Limits
	// Headers returns the headers to set on requests to a host. May be nil.
	Headers(host string) map[string]string
	// Signer returns what signs requests to a host. May be nil.
	Signer(host string) netproxy.Signer
	// HasHeaders reports whether any host has Headers or a Signer.
	HasHeaders() bool
	// Proxy returns the client of a verdict's proxy, and the proxy's addresses that may be dialed. It returns an error
	// if there are none.
	Proxy(ctx context.Context, via *netpolicy.Via) (*upstream.Proxy, []netip.AddrPort, error)
	// Update replaces the policy. On an error the old one stays.
	Update(spec netpolicy.Spec) error
	// Facts returns the names that the guest has resolved, for its clones.
	Facts() json.RawMessage
	Close()
}

// Question is about one flow.
type Question struct {
	Protocol netwire.Protocol // with Echo, the port of Far is 0
	Far      netip.AddrPort   // requested by the guest, or resolved from Name
	// Name was read from the flow, or is the name by which it was allowed before. The caller
	// guarantees that Far is our own resolution of it.
	Name string
}

// Outcome is the answer to a Question.
type Outcome uint8

// Outcomes.
const (
	Deny     Outcome = iota
	Allow            // dial, and hand over; with Peek after reading the name
	NeedName         // the name decides: accept, read it, ask again
)

// Verdict is an answer, with the data for the audit.
type Verdict struct {
	Outcome Outcome // the zero value is Deny
	// Peek is set on allowed flows if their first bytes may contain a host name that rules apply
	// to. A flow without a name continues.
	Peek bool
	// Dial replaces the requested address if it is valid.
	Dial netip.AddrPort
	// Via is the policy's own proxy for an allowed flow, or nil.
	Via *netpolicy.Via
	// Known is a name that the proxy may resolve instead of the address. May be empty.
	Known      string
	Rule, Name string // the deciding rule and name; may be empty
	// Code is the reason as a word for programs, Text as a sentence.
	Code, Text string
}
