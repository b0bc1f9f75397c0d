package api

import "time"

// Net is a policy by its name, instead of a NetworkPolicy.
type Net string

const (
	NetNone   Net = "none"
	NetPublic Net = "public"
	NetCustom Net = "custom" // in answers only
	NetTap    Net = "tap"    // in answers only: NetworkPolicy.Tap names the tap
)

// NetworkPolicy is the network policy of a sandbox. No policy can allow private, local and metadata
// addresses, or the daemon's own host. That floor always applies.
type NetworkPolicy struct {
	Default    string         `json:"default,omitempty" doc:"What becomes of connections that no rule names: deny, if absent, or public" enum:"deny,public"`
	Allow      []string       `json:"allow,omitempty" doc:"Rules: host[:port[-port]][/tcp|udp], where host is a name, *.domain, an address or a CIDR. Allow beats deny" maxItems:"4096" nullable:"true"`
	Deny       []string       `json:"deny,omitempty" doc:"Rules of the same form" maxItems:"4096" nullable:"true"`
	HTTPSPorts []uint16       `json:"https_ports,omitempty" doc:"Ports, beside 80 and 443, whose first bytes may tell the name where no DNS answer did" maxItems:"64" nullable:"true"`
	Headers    []HeaderRule   `json:"headers,omitempty" doc:"Set by the host on requests to named hosts, over TLS it has verified. Values are never given out: they read ***, and who sends that back keeps the value there is" maxItems:"64" nullable:"true"`
	Limits     *NetworkLimits `json:"limits,omitempty" doc:"Bounds of what the sandbox may use"`
	Tap        string         `json:"tap,omitempty" doc:"Instead of all that, a tap device on the daemon's host that its operator allows: for one sandbox that is forked, or while a snapshot is made" maxLength:"15"`
}

// HeaderRule injects headers, which may be secrets, into requests to one host.
type HeaderRule struct {
	Host    string            `json:"host" doc:"Name of the host"`
	Headers map[string]string `json:"headers" doc:"Values by header"`
}

// NetworkLimits limit a sandbox's network. Absent fields have their default.
type NetworkLimits struct {
	Flows          int   `json:"flows,omitempty" doc:"Connections at once" minimum:"0"`
	FlowsPerSecond int   `json:"flows_per_second,omitempty" doc:"New connections a second" minimum:"0"`
	DNSPerSecond   int   `json:"dns_per_second,omitempty" doc:"DNS queries a second" minimum:"0"`
	BytesPerSecond int64 `json:"bytes_per_second,omitempty" doc:"Bytes a second, each way" minimum:"0"`
}

// NetworkSummary describes a sandbox's network in a list of sandboxes.
type NetworkSummary struct {
	Policy Net      `json:"policy" doc:"none, public, custom: what rules say; or tap: a network of the operator's" enum:"none,public,custom,tap"`
	Tap    string   `json:"tap,omitempty" doc:"The operator's tap that it has"`
	Allow  int      `json:"allow" doc:"Number of allow rules"`
	Deny   int      `json:"deny" doc:"Number of deny rules"`
	Cut    []string `json:"cut,omitempty" doc:"What was asked for and the operator's ceiling took, each with the reason"`
}

// SetNetworkRequest is the body of PUT /v1/sandboxes/{id}/network. Net or network replaces the
// whole current policy.
type SetNetworkRequest struct {
	Net     Net            `json:"net,omitempty" doc:"none or public, instead of network" enum:"none,public"`
	Network *NetworkPolicy `json:"network,omitempty" doc:"The whole policy: what is absent is cleared"`
}

// SandboxNetwork is the body of GET and the answer to PUT /v1/sandboxes/{id}/network.
type SandboxNetwork struct {
	NetworkSummary
	Network   NetworkPolicy `json:"network" doc:"The policy that was asked for"`
	Effective NetworkPolicy `json:"effective" doc:"What of it the operator's ceiling leaves: this is enforced"`
	Warning   string        `json:"warning,omitempty" doc:"Why the sandbox has less than that"`
}

// NetworkFlow is one live connection of a sandbox.
type NetworkFlow struct {
	Protocol string    `json:"protocol" doc:"tcp, udp, or echo: a row of pings"`
	Guest    string    `json:"guest" doc:"Address and port in the guest"`
	Far      string    `json:"far" doc:"Address and port of the other end"`
	Name     string    `json:"name,omitempty" doc:"Name that the guest resolved, or named, if one is known"`
	Rule     string    `json:"rule,omitempty" doc:"Rule that allowed it; absent: the default"`
	Sent     int64     `json:"sent" doc:"Bytes from the guest"`
	Received int64     `json:"received" doc:"Bytes to the guest"`
	Began    time.Time `json:"began" doc:"When it was opened"`
}
