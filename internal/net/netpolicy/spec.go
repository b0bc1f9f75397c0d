// Package netpolicy decides which flows of a sandbox are allowed. It does no I/O: it maps rules,
// addresses and known names to a verdict with its reason. All code that dials for a sandbox asks
// it, and it makes all such decisions.
package netpolicy

// Default is the decision for flows that no rule names.
type Default string

// Defaults.
const (
	Deny   Default = "deny"
	Public Default = "public"
)

// Spec is a policy as users write it, in YAML or JSON.
type Spec struct {
	// Default is for flows that no rule names. If empty, Deny.
	Default Default `json:"default,omitempty" yaml:"default,omitempty"`
	// Allow and Deny are rules: host[:port[-port]][/tcp|udp], where host is a name, *.domain, an
	// address or a CIDR. Allow beats Deny.
	Allow []string `json:"allow,omitempty" yaml:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty" yaml:"deny,omitempty"` // same form as Allow
	// HTTPSPorts are further ports, beside 80 and 443, on which a flow's first bytes may contain
	// the host name if no DNS answer did.
	HTTPSPorts []uint16 `json:"https_ports,omitempty" yaml:"https_ports,omitempty"`
	// Headers are set by the host on requests to named hosts, over TLS it has verified.
	Headers []HeaderRule `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Sign are rules for requests to S3-compatible storage, which the host signs.
	Sign []SignRule `json:"sign,omitempty" yaml:"sign,omitempty"`
	// Proxy is the sandbox's own proxy for TCP; see ProxyRule.
	Proxy *ProxyRule `json:"proxy,omitempty" yaml:"proxy,omitempty"`
	// Limits limits the sandbox's network use. Zero means the default of each.
	Limits Limits `json:"limits,omitzero" yaml:"limits,omitempty"`
	// Within is an upper bound of this policy: the policy of the sandbox that forked this one (see
	// Narrow). Users should not set it, but it is harmless if they do.
	Within *Spec `json:"within,omitempty" yaml:"-"`
}

// HeaderRule adds headers, which may be secrets, to requests to one host.
type HeaderRule struct {
	Host    string            `json:"host" yaml:"host"`                           // one host name; * is not allowed
	Headers map[string]string `json:"headers,omitempty" yaml:"headers,omitempty"` // values by header name
	// Secrets are templates by header name, with the owner's secrets in braces, such as "Bearer {API_KEY}".
	Secrets map[string]string `json:"secrets,omitempty" yaml:"secrets,omitempty"`
	// Missing is set by the daemon if a secret has no value. Requests to the host are then refused.
	Missing string `json:"missing,omitempty" yaml:"-"`
}

// SignRule signs requests to one host of S3-compatible storage, in TLS, with an AWS Signature V4. Hosts BUCKET.HOST
// of its buckets belong to it.
type SignRule struct {
	Host   string `json:"host" yaml:"host"`     // one host name; * is not allowed
	Region string `json:"region" yaml:"region"` // such as eu-central-1
	// Secrets are the names of the owner's secrets with the keys.
	Secrets SignSecrets `json:"secrets" yaml:"secrets"`
	// Buckets are the granted parts of buckets. They add up.
	Buckets []BucketRule `json:"buckets" yaml:"buckets"`
	// Keys are set by the daemon, from Secrets.
	Keys *SignKeys `json:"keys,omitempty" yaml:"-"`
	// Missing is set by the daemon if a secret has no value. Requests to the host are then refused.
	Missing string `json:"missing,omitempty" yaml:"-"`
}

// SignSecrets are names of secrets.
type SignSecrets struct {
	AccessKeyID     string `json:"access_key_id" yaml:"access_key_id"`         // its value is such as AKIA...
	SecretAccessKey string `json:"secret_access_key" yaml:"secret_access_key"` // belongs to AccessKeyID
	// SessionToken belongs to temporary keys. May be empty.
	SessionToken string `json:"session_token,omitempty" yaml:"session_token,omitempty"`
}

// SignKeys are values of secrets.
type SignKeys struct {
	AccessKeyID     string `json:"access_key_id"`           // of SignSecrets.AccessKeyID
	SecretAccessKey string `json:"secret_access_key"`       // of SignSecrets.SecretAccessKey
	SessionToken    string `json:"session_token,omitempty"` // of SignSecrets.SessionToken
}

// BucketRule is a granted part of a bucket.
type BucketRule struct {
	Name string `json:"name" yaml:"name"` // of the bucket
	// Prefix begins the keys of the granted objects, and ends in a slash. If empty, all objects are granted.
	Prefix string `json:"prefix,omitempty" yaml:"prefix,omitempty"`
	// ReadOnly refuses all operations that change objects.
	ReadOnly bool `json:"read_only,omitempty" yaml:"read_only,omitempty"`
}

// ProxyRule sends all allowed TCP connections through a proxy, except those to ports of the host. UDP and echo
// requests are refused. The operator's bounds decide whether the proxy may be reached.
type ProxyRule struct {
	URL string `json:"url" yaml:"url"` // socks5://HOST[:PORT] or http://HOST:PORT, without user and password
	// User is the user name at the proxy, and Secret the name of the owner's secret with the password. Both or neither,
	// unless Password is given as text.
	User   string `json:"user,omitempty" yaml:"user,omitempty"`
	Secret string `json:"secret,omitempty" yaml:"secret,omitempty"` // see User
	// Names lets the proxy resolve the names of connections whose name is certain.
	Names bool `json:"names,omitempty" yaml:"names,omitempty"`
	// Password is set by the daemon, from Secret. Without Secret it is the password as text. Like literal headers,
	// snapshots and other sandboxes do not inherit it.
	Password string `json:"password,omitempty" yaml:"-"`
	// Missing is set by the daemon if the secret has no value. Connections are then refused.
	Missing string `json:"missing,omitempty" yaml:"-"`
}

// Limits limits a sandbox's network.
type Limits struct {
	Flows          int   `json:"flows,omitempty" yaml:"flows,omitempty"`                       // concurrent
	FlowsPerSecond int   `json:"flows_per_second,omitempty" yaml:"flows_per_second,omitempty"` // new flows
	DNSPerSecond   int   `json:"dns_per_second,omitempty" yaml:"dns_per_second,omitempty"`     // queries
	BytesPerSecond int64 `json:"bytes_per_second,omitempty" yaml:"bytes_per_second,omitempty"` // in each direction
}
