// Package agentproto is the contract between host and guest: the .proto files
// and their generated code (folders process, filesystem, agentv1), the ports,
// the text that says a guest is ready, and
// the calls by which a guest forks itself (forkwire). It owns no behaviour: agentclient is
// the host's side of it, internal/agent the guest's. Both may import it; it
// imports neither. The trap: process and filesystem are other people's wire
// format, so a field there is never renamed or renumbered, and whatever is ours
// goes into agentv1.
package agentproto

//go:generate go run ./protogen process/process.proto filesystem/filesystem.proto agentv1/agent.proto agentv1/inventory.proto

const (
	// AgentPort is the vsock port on which the guest's agent serves HTTP.
	AgentPort = 1024
	// ReadyPort is the port on the host (CID 2) that the agent dials once.
	ReadyPort = 1023
	// ForkPort is the port on the host that the agent dials for each call of a
	// program that forks this guest (package forkwire).
	ForkPort = 1022
	// ReadyMessage is all that is sent to ReadyPort: the agent serves now.
	ReadyMessage = "READY\n"
)

// MaxMessageBytes bounds one RPC message in either direction. Larger things
// are streamed: output in chunks, file contents over /files.
const MaxMessageBytes = 16 << 20

// HeaderKillOnDisconnect on process.Start makes the agent kill the process and
// all it started when the caller goes away. Without it a process outlives its
// caller, which is what E2B's clients expect. In a clone the callers of the
// source have not gone away.
const HeaderKillOnDisconnect = "Forkd-Kill-On-Disconnect"

// HeaderKeepalive is the idle time, in seconds, after which a stream carries a
// keepalive message.
const HeaderKeepalive = "Keepalive-Ping-Interval"

// HeaderOutputDropped answers process.Connect in a clone: so many bytes of what
// the process wrote before this caller came are lost. Absent means none.
const HeaderOutputDropped = "Forkd-Output-Dropped"
