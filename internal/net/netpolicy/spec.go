// Package netpolicy decides which flows of a sandbox may be. It is pure: rules,
// addresses and attested names in, a verdict with its reason out. Whoever dials
// asks it, and nobody else decides.
package netpolicy

// Default says what becomes of a flow that no rule names.
type Default string

// Defaults.
const (
	Deny   Default = "deny"
	Public Default = "public"
)

// Spec is a policy as users write it, in YAML or JSON.
type Spec struct {
	// Default is for flows that no rule names; empty is Deny.
	Default Default `json:"default,omitempty" yaml:"default,omitempty"`
	// Allow and Deny are rules: host[:port[-port]][/tcp|udp], where host is a name,
	// *.domain, an address or a CIDR. Allow beats Deny.
	Allow []string `json:"allow,omitempty" yaml:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty" yaml:"deny,omitempty"`
	// HTTPSPorts are ports, beside 80 and 443, whose first bytes may tell the
	// name where no DNS answer did.
	HTTPSPorts []uint16 `json:"https_ports,omitempty" yaml:"https_ports,omitempty"`
	// Headers are set by the host on requests to named hosts, over TLS it has verified.
	Headers []HeaderRule `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Limits bound what the sandbox may use; zero is the default of each.
	Limits Limits `json:"limits,omitzero" yaml:"limits,omitempty"`
	// Within is a policy that this one is never above: that of the sandbox which forked this
	// one (see Narrow). It is not for users to write, and harmless if they do.
	Within *Spec `json:"within,omitempty" yaml:"-"`
}

// HeaderRule injects headers, which may be secrets, into requests to one host.
type HeaderRule struct {
	Host    string            `json:"host" yaml:"host"`
	Headers map[string]string `json:"headers" yaml:"headers"`
}

// Limits bound a sandbox's network.
type Limits struct {
	Flows          int   `json:"flows,omitempty" yaml:"flows,omitempty"`                       // at once
	FlowsPerSecond int   `json:"flows_per_second,omitempty" yaml:"flows_per_second,omitempty"` // new ones
	DNSPerSecond   int   `json:"dns_per_second,omitempty" yaml:"dns_per_second,omitempty"`     // queries
	BytesPerSecond int64 `json:"bytes_per_second,omitempty" yaml:"bytes_per_second,omitempty"` // each way
}
