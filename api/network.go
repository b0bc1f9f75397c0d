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
	Default    string         `json:"default,omitempty" doc:"Decision without a matching rule: deny (default) or public" enum:"deny,public"`
	Allow      []string       `json:"allow,omitempty" doc:"Rules: host[:port[-port]][/tcp|udp], where host is a name, *.domain, an address or a CIDR. Allow beats deny" maxItems:"4096" nullable:"true"`
	Deny       []string       `json:"deny,omitempty" doc:"Rules of the same form" maxItems:"4096" nullable:"true"`
	HTTPSPorts []uint16       `json:"https_ports,omitempty" doc:"Ports, in addition to 80 and 443, for which the TLS server name or HTTP host decides if no DNS answer did" maxItems:"64" nullable:"true"`
	Headers    []HeaderRule   `json:"headers,omitempty" doc:"Set by the host on requests to named hosts, over TLS it has verified. Values are never returned: they read ***, and sending *** keeps the current value" maxItems:"64" nullable:"true"`
	Sign       []SignRule     `json:"sign,omitempty" doc:"Requests to S3-compatible storage that the host signs, with keys of the owner's secrets, over TLS it has verified" maxItems:"10" nullable:"true"`
	Proxy      *NetworkProxy  `json:"proxy,omitempty" doc:"Proxy for all TCP connections of the sandbox, except those to ports of the host. UDP and echo requests are refused"`
	Limits     *NetworkLimits `json:"limits,omitempty" doc:"Limits of the sandbox's network use"`
	Tap        string         `json:"tap,omitempty" doc:"Tap device on the daemon's host, allowed by its operator, in place of all rules: for one forked sandbox, or while a snapshot is made" maxLength:"15"`
}

// HeaderRule injects headers, which may be secrets, into requests to one host.
type HeaderRule struct {
	Host    string            `json:"host" doc:"Name of the host"`
	Headers map[string]string `json:"headers,omitempty" doc:"Values by header"`
	Secrets map[string]string `json:"secrets,omitempty" doc:"Templates by header, with names of the owner's secrets in braces, such as Bearer {API_KEY}. The host resolves them for each sandbox, and refuses requests if a secret is missing"`
}

// SignRule signs requests to one host of S3-compatible storage with an AWS Signature V4. Hosts BUCKET.HOST of its
// buckets belong to it.
type SignRule struct {
	Host    string       `json:"host" doc:"Name of the host, such as s3.eu-central-1.amazonaws.com"`
	Region  string       `json:"region" doc:"Region in the signature, such as eu-central-1"`
	Secrets SignSecrets  `json:"secrets" doc:"Names of the owner's secrets with the keys. The host resolves them for each sandbox, and refuses requests if a secret is missing"`
	Buckets []BucketRule `json:"buckets" doc:"Granted parts of buckets. They add up" minItems:"1" maxItems:"20"`
}

// SignSecrets are names of secrets.
type SignSecrets struct {
	AccessKeyID     string `json:"access_key_id" doc:"Name of the secret with the ID of the access key"`
	SecretAccessKey string `json:"secret_access_key" doc:"Name of the secret with the secret key"`
	SessionToken    string `json:"session_token,omitempty" doc:"Name of the secret with the session token, for temporary keys"`
}

// BucketRule is a granted part of a bucket.
type BucketRule struct {
	Name     string `json:"name" doc:"Name of the bucket"`
	Prefix   string `json:"prefix,omitempty" doc:"Beginning of the keys of the granted objects, which ends in a slash. Absent: all objects"`
	ReadOnly bool   `json:"read_only,omitempty" doc:"Refuse operations that change objects" default:"false"`
}

// NetworkProxy is a policy's own proxy for TCP connections.
type NetworkProxy struct {
	URL    string `json:"url" doc:"socks5://HOST[:PORT] or http://HOST:PORT, without a user name"`
	User   string `json:"user,omitempty" doc:"User name at the proxy"`
	Secret string `json:"secret,omitempty" doc:"Name of the owner's secret with the password at the proxy"`
	Names  bool   `json:"names,omitempty" doc:"Let the proxy resolve the names that rules have allowed, or all names if the policy has no rules" default:"false"`
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
	Policy Net      `json:"policy" doc:"none, public, custom (rules), or tap (a network of the operator)" enum:"none,public,custom,tap"`
	Tap    string   `json:"tap,omitempty" doc:"Tap device of the operator"`
	Allow  int      `json:"allow" doc:"Number of allow rules"`
	Deny   int      `json:"deny" doc:"Number of deny rules"`
	Cut    []string `json:"cut,omitempty" doc:"Requested rules removed by the operator's ceiling, each with the reason"`
}

// SetNetworkRequest is the body of PUT /v1/sandboxes/{id}/network. Net or network replaces the
// whole current policy.
type SetNetworkRequest struct {
	Net     Net            `json:"net,omitempty" doc:"none or public, instead of network" enum:"none,public"`
	Network *NetworkPolicy `json:"network,omitempty" doc:"Complete policy: absent fields are cleared"`
}

// SandboxNetwork is the body of GET and the answer to PUT /v1/sandboxes/{id}/network.
type SandboxNetwork struct {
	NetworkSummary
	Network   NetworkPolicy `json:"network" doc:"Requested policy"`
	Effective NetworkPolicy `json:"effective" doc:"Enforced policy: the requested one limited by the operator's ceiling"`
	Warning   string        `json:"warning,omitempty" doc:"Why the enforced policy is stricter"`
}

// NetworkFlow is one live connection of a sandbox.
type NetworkFlow struct {
	Protocol string    `json:"protocol" doc:"tcp, udp, or echo: a row of pings"`
	Guest    string    `json:"guest" doc:"Address and port in the guest"`
	Far      string    `json:"far" doc:"Remote address and port"`
	Name     string    `json:"name,omitempty" doc:"Host name resolved or used by the guest, if known"`
	Rule     string    `json:"rule,omitempty" doc:"Rule that allowed it; absent: the default"`
	Sent     int64     `json:"sent" doc:"Bytes from the guest"`
	Received int64     `json:"received" doc:"Bytes to the guest"`
	Began    time.Time `json:"began" doc:"When it was opened"`
}
