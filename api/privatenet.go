package api

// PrivateNetworkPattern matches the name of a private network.
const PrivateNetworkPattern = "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"

// NetJoin is a sandbox's place in a private network.
type NetJoin struct {
	Network string `json:"network" doc:"Name of a private network of the same owner" pattern:"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$" patternDescription:"1 to 63 letters, digits, - or _, and no - or _ first"`
	Alias   string `json:"alias,omitempty" doc:"Name of the sandbox in it: other members find it as ALIAS.forkd.internal. Absent in a request: the sandbox's id" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" patternDescription:"1 to 63 small letters, digits or -, and no - at an end"`
}

// CreatePrivateNetworkRequest is the body of POST /v1/networks.
type CreatePrivateNetworkRequest struct {
	Name string `json:"name" doc:"Name of the network, unique within its tenant" pattern:"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$" patternDescription:"1 to 63 letters, digits, - or _, and no - or _ first"`
}

// PrivateNetwork describes a private network.
type PrivateNetwork struct {
	ID          string                 `json:"id" doc:"Identifies the network; a network made again under the same name has another"`
	Name        string                 `json:"name" doc:"Name of the network"`
	Tenant      string                 `json:"tenant,omitempty" doc:"Owning tenant; absent: the operator"`
	CreatedUnix int64                  `json:"created_at_unix" doc:"When it was made, in seconds since 1970"`
	Members     []PrivateNetworkMember `json:"members" doc:"Running and paused sandboxes in it, by alias"`
}

// PrivateNetworkMember is a sandbox in a private network.
type PrivateNetworkMember struct {
	Sandbox string `json:"sandbox" doc:"Id of the sandbox"`
	Alias   string `json:"alias" doc:"Its name in the network"`
	Name    string `json:"name" doc:"Name by which other members find it"`
	Addr    string `json:"addr" doc:"Address to which that name resolves. The sandbox itself has another one"`
}

// ForkGroupRequest is the body of POST /v1/networks/{network}/fork.
type ForkGroupRequest struct {
	N      *int   `json:"n,omitempty" doc:"Number of copies" minimum:"1" maximum:"15" default:"1"`
	Prefix string `json:"prefix,omitempty" doc:"The copies' networks are PREFIX-1 and so on, without those that exist. Absent: the name of the network" pattern:"^[A-Za-z0-9][A-Za-z0-9_-]{0,59}$" patternDescription:"1 to 60 letters, digits, - or _, and no - or _ first"`
}

// ForkGroupResult is the answer to the fork of a private network.
type ForkGroupResult struct {
	Copies  []GroupCopy `json:"copies" doc:"As many as requested"`
	PauseMS float64     `json:"pause_ms" doc:"Longest pause of a member, in milliseconds"`
	TotalMS float64     `json:"total_ms" doc:"Time of the whole request, in milliseconds"`
}

// GroupCopy is a copy of a private network with its running sandboxes.
type GroupCopy struct {
	Network   string        `json:"network,omitempty" doc:"Name of the copy's network; absent for a copy that failed"`
	Sandboxes []SandboxInfo `json:"sandboxes" doc:"Copies of the members, by alias; empty for a copy that failed"`
	Error     string        `json:"error,omitempty" doc:"Why this copy was not made, for people"`
	Code      Code          `json:"code,omitempty" doc:"Code of that error"`
}
