package netpolicy

import (
	"net/netip"
	"time"
)

// Verdict is the decision about a flow or a question.
type Verdict uint8

// Verdicts. The zero value is Denied, so undecided flows are closed.
const (
	Denied   Verdict = iota
	Allowed          // dial, or resolve
	NeedName         // only the flow's first bytes can decide: see Policy.Judge
)

func (v Verdict) String() string {
	switch v {
	case Allowed:
		return "allowed"
	case NeedName:
		return "need-name"
	}
	return "denied"
}

// Reason is a stable code for a decision, for the audit log and the API.
type Reason string

// Reasons.
const (
	RuleAllow     Reason = "rule-allow"     // an allow rule matches the address
	AttestedName  Reason = "attested-name"  // an allow rule matches a name of the address
	DefaultPublic Reason = "default-public" // no rule denies it
	HostPort      Reason = "host-port"      // the operator opened this port of the host
	PrivateMember Reason = "private-member" // a member of the sandbox's private network
	ReadName      Reason = "read-name"      // an allow rule may match the name: read it

	NoRule        Reason = "no-rule"        // no rule allows it
	RuleDeny      Reason = "rule-deny"      // a deny rule matches it
	NoName        Reason = "no-name"        // no valid name where one is needed
	QUIC          Reason = "quic"           // UDP 443 hides the name needed by rules
	DNSElsewhere  Reason = "dns-elsewhere"  // another resolver would evade deny rules by name
	FloorSpecial  Reason = "floor-special"  // a special-purpose address
	FloorHost     Reason = "floor-host"     // the host's own address, or a port of it that is not open
	FloorMetadata Reason = "floor-metadata" // a cloud's metadata service
	FloorName     Reason = "floor-name"     // a name closed to all sandboxes
	Ceiling       Reason = "ceiling"        // a bound of the policy, such as the ceiling, does not allow it
	LimitFlows    Reason = "limit-flows"    // too many concurrent flows
	LimitRate     Reason = "limit-rate"     // too many new flows a second
	LimitDNS      Reason = "limit-dns"      // too many queries a second
)

// Query describes one flow.
type Query struct {
	Protocol Protocol       // TCP, UDP or Echo
	Addr     netip.AddrPort // the destination in the guest's packet, or the resolved one
	// Name is set once a name was read from the flow. Only this name then counts, and no facts. The
	// caller guarantees that our own resolver returned Addr for it. Empty if no name was read.
	Name  string
	Facts *Facts    // facts of the sandbox; may be nil
	Now   time.Time // facts that have expired by then do not count
}

// Decision is the answer to a Query, with the data for the audit log.
type Decision struct {
	Verdict Verdict // the zero value is Denied
	Reason  Reason  // code for the audit and the API
	Rule    string  // the deciding rule, as its user wrote it; may be empty
	Name    string  // the deciding name; may be empty
	Text    string  // one sentence for people; empty if Allowed
	// Peek is set on Allowed TCP flows if their first bytes contain a host name that rules apply
	// to. That name must also pass JudgeName. A flow without a name continues.
	Peek bool
	// Dial replaces the requested address. It is set only for ports of the host.
	Dial netip.AddrPort
}

// DNSDecision is the decision about a guest's question to the resolver.
type DNSDecision struct {
	Verdict Verdict // Allowed or Denied; a Denied name never leaves the host
	Reason  Reason  // code for the audit and the API
	Rule    string  // the deciding rule, as its user wrote it; may be empty
	Text    string  // one sentence for people; empty if Allowed
	Empty   bool    // answer without records, without asking upstream
	Local   bool    // the name is HostName: answer with HostAddr, without asking upstream
}
