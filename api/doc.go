// Package api is the contract of forkd's REST API: the wire types, the error
// codes, the paths' limits. It owns no behaviour beyond looking up its own
// tables, and imports the standard library only, so that any Go program can
// use it. The daemon, the client and the CLI all speak in these types. The
// trap: the fields named "original" are read by clients we did not write; a
// rename, a retype or a null that becomes absent breaks them.
package api

// Version is the name of this generation of the API.
const Version = "v1"

// Limits that every route enforces.
const (
	// MaxFork is the largest N of one fork.
	MaxFork = 1000
	// MaxBodyBytes bounds a JSON request body.
	MaxBodyBytes = 16 << 20
	// MinTokenBytes is the length below which a token is no token.
	MinTokenBytes = 16
	// MaxBootWaitSecs is the longest boot a request may ask to wait for.
	MaxBootWaitSecs = 60
	// MaxPool is the largest number of shells kept ready for one shape.
	MaxPool = 1000
)

// TagPattern is what snapshot tags match. It is checked before a tag is used
// for anything, above all before a path is built from it.
const TagPattern = `^[A-Za-z0-9_-]{1,64}$`

// IDPattern is what sandbox ids match.
const IDPattern = `^[A-Za-z0-9_-]{1,64}$`

// ImagePattern is what image names match.
const ImagePattern = `^[A-Za-z0-9_-]{1,64}$`

// Health is the body of GET /healthz.
type Health struct {
	OK bool `json:"ok" doc:"Always true: a daemon that cannot serve does not answer"`
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
