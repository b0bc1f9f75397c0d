package netd

import (
	"context"
	"encoding/json"
	"net/netip"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
)

// Rules makes what judges the flows of a VM.
type Rules interface {
	New(b control.Binding) (Judge, error)
}

// Judge decides about one VM's flows and names, and knows what its guest has
// resolved. It is asked from many goroutines.
type Judge interface {
	// Flow decides about an address that is about to be dialed.
	Flow(q Question) Verdict
	// Name decides about a name that was read from a flow to a port, before it is resolved.
	Name(name string, port uint16) Verdict
	// Attested reports whether our own resolver has told the guest that name has addr.
	Attested(name string, addr netip.Addr) bool
	// Resolve is our own resolution of a name that Name let pass.
	Resolve(ctx context.Context, name string) ([]netip.Addr, error)
	// DNS answers a guest's query; nil is no answer at all.
	DNS(ctx context.Context, query []byte, tcp bool) []byte
	// Limits are those of the policy, with no zeros.
	Limits() netpolicy.Limits
	// Headers are what is to be set on requests to a host; nil is nothing.
	Headers(host string) map[string]string
	// HasHeaders reports whether there is any host with Headers.
	HasHeaders() bool
	// Update replaces the policy. With an error the old one stays.
	Update(spec netpolicy.Spec) error
	// Facts is what the guest has resolved, for its clones.
	Facts() json.RawMessage
	Close()
}

// Question is about one flow.
type Question struct {
	Protocol netwire.Protocol
	Far      netip.AddrPort
	// Name is one that was read from the flow, or by which it was allowed before:
	// whoever asks vouches that Far is our own resolution of it.
	Name string
}

// Outcome of a Question.
type Outcome uint8

// Outcomes.
const (
	Deny     Outcome = iota
	Allow            // dial, and hand over; with Peek after a look at the name
	NeedName         // the name decides: accept, read it, ask again
)

// Verdict is an answer, with what the audit says about it.
type Verdict struct {
	Outcome Outcome
	// Peek is set on allowed flows whose first bytes may name a host that rules
	// speak of. One without a name goes on.
	Peek bool
	// Dial is where to dial in place of the address that was asked for.
	Dial       netip.AddrPort
	Rule, Name string
	// Code says why, in a word that programs may look at; Text in a sentence.
	Code, Text string
}
