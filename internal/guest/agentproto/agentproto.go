// Package agentproto is the contract between host and guest: the .proto files
// and their generated code (folders process, filesystem, agentv1), the ports,
// the text that says a guest is ready, the calls by which a guest forks itself (forkwire),
// the words before a connection to a port in the guest (dialwire), and the form of messages without HTTP (msgwire). It owns no behaviour: agentclient is
// the host's side of it, internal/guest/agent the guest's. Both may import it; it
// imports neither. The trap: process and filesystem are other people's wire
// format, so a field there is never renamed or renumbered; whatever is ours
// goes into agentv1, or has a number from 100 up if it belongs to their messages.
package agentproto

import (
	"strconv"
	"time"
)

//go:generate go run ./protogen process/process.proto filesystem/filesystem.proto agentv1/agent.proto agentv1/inventory.proto

const (
	// AgentPort is the vsock port on which the guest's agent serves HTTP.
	AgentPort = 1024
	// IdentityPort is the vsock port on which the agent takes an identity (package msgwire).
	IdentityPort = 1025
	// DialPort is the vsock port on which the agent connects the host with servers in the guest (package dialwire).
	DialPort = 1026
	// EvalPort is the vsock port on which the agent evaluates, without HTTP (package msgwire).
	EvalPort = 1027
	// ReadyPort is the port on the host (CID 2) that the agent dials once.
	ReadyPort = 1023
	// ForkPort is the port on the host that the agent dials for each call of a
	// program that forks this guest (package forkwire).
	ForkPort = 1022
	// ReadyMessage is all that is sent to ReadyPort: the agent serves now.
	ReadyMessage = "READY\n"
)

// What an agent can beyond what every agent can, as it says itself (Ping). A snapshot's
// manifest keeps the names, and the host asks nothing else of its children.
const (
	// CanIdentityPort: it takes identities on IdentityPort.
	CanIdentityPort = "identity-port"
	// CanInventory: it tells what is in its guest (agentv1.Inventory).
	CanInventory = "inventory"
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

// HeaderTrees answers requests to filesystem.Filesystem of an agent that has the routes of /files/tree.
const HeaderTrees = "Forkd-Trees"

// HeaderTreeBytes answers GET /files/tree: so much content is in the tree. Absent means that it was not counted.
const HeaderTreeBytes = "Forkd-Tree-Bytes"

// KilledByKernel begins the error of the end of a process that the guest's kernel has ended.
const KilledByKernel = "killed by the guest's kernel: "

// HeaderHostTime is the host's wall clock when it sent a request, in nanoseconds since 1970. Only the daemon sets it:
// the agent sets a clock that is behind.
const HeaderHostTime = "Forkd-Host-Time"

// HostTime is a value of HeaderHostTime.
func HostTime() string { return strconv.FormatInt(time.Now().UnixNano(), 10) }

// HeaderAsRoot on filesystem.Filesystem and /files makes the agent act as root
// and give what it makes to the request's user, as E2B's envd does. Without it
// files are read and written with the rights of that user. It is for the host's
// own code: the daemon's route to the agent takes it off.
const HeaderAsRoot = "Forkd-As-Root"
