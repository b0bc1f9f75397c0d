package netpolicy

import (
	"net/netip"
	"time"
)

// Verdict is what becomes of a flow or a question.
type Verdict uint8

// Verdicts. The zero value is Denied: what nobody decided is closed.
const (
	Denied   Verdict = iota
	Allowed          // dial, or resolve
	NeedName         // only the flow's first bytes can tell: see Policy.Judge
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
	RuleAllow     Reason = "rule-allow"     // an allow rule speaks of the address
	AttestedName  Reason = "attested-name"  // an allow rule speaks of a name that the address has
	DefaultPublic Reason = "default-public" // no rule denies it
	HostPort      Reason = "host-port"      // the operator opened this port of the host
	ReadName      Reason = "read-name"      // an allow rule may speak of the name: read it

	NoRule        Reason = "no-rule"        // no rule allows it
	RuleDeny      Reason = "rule-deny"      // a deny rule speaks of it
	NoName        Reason = "no-name"        // what was read where a name is needed is none
	QUIC          Reason = "quic"           // UDP 443 hides the name that rules decide by
	DNSElsewhere  Reason = "dns-elsewhere"  // another resolver would evade deny rules by name
	FloorSpecial  Reason = "floor-special"  // a special-purpose address
	FloorHost     Reason = "floor-host"     // the host's own address, or a port of it that is not open
	FloorMetadata Reason = "floor-metadata" // a cloud's metadata
	FloorName     Reason = "floor-name"     // a name that nobody may reach
	Ceiling       Reason = "ceiling"        // what bounds the policy does not give it
	LimitFlows    Reason = "limit-flows"    // too many flows at once
	LimitRate     Reason = "limit-rate"     // too many new flows a second
	LimitDNS      Reason = "limit-dns"      // too many queries a second
)

// Query asks about one flow.
type Query struct {
	Protocol Protocol
	Addr     netip.AddrPort // the far end as the guest has it, or as it was resolved
	// Name is set once a name was read from the flow: then only it counts, and no fact. The
	// caller vouches that Addr is what our own resolver has for it. Empty if none was read.
	Name  string
	Facts *Facts // the sandbox's; nil for none
	Now   time.Time
}

// Decision is an answer to a Query, with what the audit log says about it.
type Decision struct {
	Verdict Verdict
	Reason  Reason
	Rule    string // the rule that decided, as its user wrote it; empty for none
	Name    string // the name by which it was decided; empty for none
	Text    string // one sentence for people; empty if Allowed
	// Peek is set on Allowed TCP flows whose first bytes name a host that rules decide about:
	// the name that is read there must pass JudgeName, too. One without a name goes on.
	Peek bool
	// Dial is where to dial in place of the address that was asked for; it is set for ports
	// of the host only.
	Dial netip.AddrPort
}

// DNSDecision is what becomes of a guest's question to the resolver.
type DNSDecision struct {
	Verdict Verdict // Allowed or Denied; a name that is Denied never leaves the host
	Reason  Reason
	Rule    string
	Text    string // one sentence for people; empty if Allowed
	Empty   bool   // answer without records, and ask nobody
	Local   bool   // it is HostName: answer HostAddr, and ask nobody
}
