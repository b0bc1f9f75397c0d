// Package api is the contract of forkd's REST API: the wire types, the error codes and the limits
// of paths. Its only behaviour is the lookup in its own tables. It imports the standard library
// only, so that any Go program can use it. The daemon, the client and the CLI all use these types.
// The trap: third-party clients read the fields marked "Original". Renaming such a field, changing
// its type or leaving out a null breaks them.
package api

// Version is the name of this generation of the API.
const Version = "v1"

// Limits that every route enforces.
const (
	// MaxFork is the largest N of one fork.
	MaxFork = 1000
	// MaxBodyBytes is the largest JSON request body, in bytes.
	MaxBodyBytes = 16 << 20
	// MinTokenBytes is the shortest valid token, in bytes.
	MinTokenBytes = 16
	// MaxBootWaitSecs is the longest wait for a boot a request may ask for, in seconds.
	MaxBootWaitSecs = 60
	// MaxPool is the largest number of shells kept ready for one shape.
	MaxPool = 1000
)

// TagPattern matches snapshot tags. Every use of a tag comes after this check, in particular a path
// built from it.
const TagPattern = `^[A-Za-z0-9_-]{1,64}$`

// IDPattern matches sandbox IDs.
const IDPattern = `^[A-Za-z0-9_-]{1,64}$`

// ImagePattern matches image names.
const ImagePattern = `^[A-Za-z0-9_-]{1,64}$`

// Health is the body of GET /healthz.
type Health struct {
	OK bool `json:"ok" doc:"Always true: a daemon that cannot serve does not answer"`
}

// Readiness is the body of GET /readyz.
type Readiness struct {
	Ready bool `json:"ready" doc:"Always true: a daemon that cannot start VMs answers with an error"`
}

// VersionInfo is the body of GET /version.
type VersionInfo struct {
	Version string `json:"version" doc:"Version of the daemon"`
	API     string `json:"api" doc:"Generation of the API, v1"`
	// Ours.
	Commit string `json:"commit,omitempty" doc:"Source revision the daemon was built from"`
	Go     string `json:"go,omitempty" doc:"Version of the Go toolchain"`
	OS     string `json:"os,omitempty" doc:"Operating system and architecture"`
	Domain string `json:"domain,omitempty" doc:"Domain of servers in sandboxes, http://{port}-{dns_id}.DOMAIN; absent: they are reached through the API only"`
}
