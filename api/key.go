package api

// HeaderKey carries a key, as an alternative to Authorization: Bearer.
const HeaderKey = "X-API-KEY"

// KeyPattern matches the ID of a key, which names it in a path.
const KeyPattern = "^k[0-9a-f]{12}$"

// MaxKeyGraceSecs is the longest time the old text of a rotated key may stay valid, in seconds.
const MaxKeyGraceSecs = 7 * 86400

// KeyQuotas limit the use of a tenant when it sends this key. 0 or absent means no limit.
type KeyQuotas struct {
	Sandboxes         int `json:"sandboxes,omitempty" doc:"Limit of the tenant's concurrent sandboxes" minimum:"0"`
	MemoryMiB         int `json:"memory_mib,omitempty" doc:"Memory of their guests, all together" minimum:"0"`
	ForksPerMinute    int `json:"forks_per_minute,omitempty" doc:"Limit of children per minute" minimum:"0"`
	DiskMiB           int `json:"disk_mib,omitempty" doc:"Limit of the tenant's snapshots on disk; at the limit new ones are refused" minimum:"0"`
	RequestsPerSecond int `json:"requests_per_second,omitempty" doc:"Requests of any kind with this key" minimum:"0"`
}

// CreateKeyRequest is the body of POST /v1/keys.
type CreateKeyRequest struct {
	Name        string    `json:"name" doc:"Name of the key, for people" pattern:"^[A-Za-z0-9_-]{1,64}$" patternDescription:"1 to 64 letters, digits, - or _"`
	Tenant      string    `json:"tenant,omitempty" doc:"Tenant of the key; empty: the operator, who sees everything. If a tenant's key makes it, its tenant" maxLength:"24"`
	Scopes      []string  `json:"scopes" doc:"Permissions: read, run, fork, admin, layers" minItems:"1" maxItems:"8" nullable:"false"`
	Quotas      KeyQuotas `json:"quotas,omitempty" doc:"How much of it"`
	ExpiresSecs int64     `json:"expires_secs,omitempty" doc:"How long it is good; 0: until it is revoked" minimum:"0" maximum:"3153600000"`
	HostPorts   []string  `json:"host_ports,omitempty" doc:"Host ports, PORT or FIRST-LAST, that policies of the key can name as host.forkd.internal; absent: none" maxItems:"64" nullable:"false"`
}

// RotateKeyRequest is the body of POST /v1/keys/{key}/rotate. The body may be absent.
type RotateKeyRequest struct {
	GraceSecs int64 `json:"grace_secs,omitempty" doc:"How long the old text is good, too; 0: it ends at once" minimum:"0" maximum:"604800"`
}

// Key describes a key, without its text.
type Key struct {
	ID           string    `json:"id" doc:"Name of the key in paths, k and 12 hex digits"`
	Name         string    `json:"name" doc:"Its name, for people"`
	Tenant       string    `json:"tenant,omitempty" doc:"Tenant of the key; absent: the operator"`
	Scopes       []string  `json:"scopes" doc:"Permissions of the key" nullable:"false"`
	Quotas       KeyQuotas `json:"quotas" doc:"How much of it"`
	Status       string    `json:"status" doc:"active, expired or revoked" enum:"active,expired,revoked"`
	CreatedUnix  int64     `json:"created_at_unix" doc:"When it was made, in seconds since 1970"`
	ExpiresUnix  *int64    `json:"expires_at_unix,omitempty" doc:"When it ends; absent: never"`
	LastUsedUnix *int64    `json:"last_used_unix,omitempty" doc:"When it was last used, to the hour; absent: never"`
	HostPorts    []string  `json:"host_ports,omitempty" doc:"Host ports that policies of the key can name; absent: none" nullable:"false"`
	RevokedUnix  *int64    `json:"revoked_at_unix,omitempty" doc:"When it was revoked; absent: it was not"`
}

// NewKey is a key with its text. No other answer contains the text.
type NewKey struct {
	Key
	Text string `json:"key" doc:"Text for authentication: e2b_ and 40 hex digits. It is returned only once"`
}

// PublishRequest is the body of PUT /v1/snapshots/{tag}/public.
type PublishRequest struct {
	Public bool `json:"public" doc:"Whether all tenants can fork it"`
}
