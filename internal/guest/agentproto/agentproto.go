// Package agentproto is the contract between host and guest. It contains the .proto files with
// their generated code (packages process, filesystem and agentv1), the port numbers and the message
// of a ready guest. Package forkwire has the calls by which a guest forks itself. Package dialwire
// has the messages before a connection to a port in the guest. Package msgwire is the form of
// messages without HTTP.
//
// The package has no behaviour. The host's side is agentclient, the guest's side is
// internal/guest/agent. Both may import this package; it imports neither.
//
// Packages process and filesystem are E2B's wire format, so never rename or renumber a field there.
// Our own messages go into agentv1. Our own fields in their messages have numbers from 100 up.
package agentproto

import (
	"slices"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/leaf/oomline"
)

//go:generate go run ./protogen process/process.proto filesystem/filesystem.proto agentv1/agent.proto agentv1/inventory.proto

const (
	// AgentPort is the vsock port on which the guest's agent serves HTTP.
	AgentPort = 1024
	// IdentityPort is the vsock port on which the agent takes an identity (package msgwire).
	IdentityPort = 1025
	// DialPort is the vsock port on which the agent connects the host with servers in the guest (package dialwire).
	DialPort = 1026
	// EvalPort is the vsock port on which the agent evaluates code without HTTP (package msgwire).
	EvalPort = 1027
	// UpdatePort is the vsock port on which the agent takes a new program of itself (package updatewire).
	UpdatePort = 1028
	// ReadyPort is the port on the host (CID 2) that the agent dials once, when it is ready.
	ReadyPort = 1023
	// ForkPort is the port on the host for fork calls (package forkwire). The agent dials it for
	// each call of a program in the guest.
	ForkPort = 1022
	// NoticePort is the port on the host that the agent dials when services have changed
	// (package servicewire). The connection carries no bytes.
	NoticePort = 1021
	// TokenPort is the port on the host for identity tokens (package tokenwire). The agent dials it for
	// each token that a program in the guest asks for.
	TokenPort = 1020
	// ReadyMessage is the only message on ReadyPort. From then on the agent serves requests.
	ReadyMessage = "READY\n"
)

// Optional abilities of an agent. An agent reports them in its answer to Ping. The manifest of a
// snapshot keeps the names, and the host uses only these abilities in the snapshot's children.
const (
	// CanIdentityPort is the ability to accept identities on IdentityPort.
	CanIdentityPort = "identity-port"
	// CanInventory is the ability to list the guest's contents (agentv1.Inventory).
	CanInventory = "inventory"
	// CanServices is the ability to supervise services (package servicewire).
	CanServices = "services"
	// CanLiveness is the ability to check services that are ready.
	CanLiveness = "liveness"
	// CanStopSignal is the ability to end a service by another signal than SIGTERM.
	CanStopSignal = "stop-signal"
	// CanVolumes is the ability to mount the volumes of an identity.
	CanVolumes = "volumes"
	// CanIdentityTokens is the ability to ask for identity tokens (package tokenwire).
	CanIdentityTokens = "identity-tokens"
	// CanVolumeFiles is the ability to serve the files of mounted volumes (package volumewire).
	CanVolumeFiles = "volume-files"
	// CanUpdate is the ability to replace the agent's program, on UpdatePort.
	CanUpdate = "update"
)

// Capabilities returns the abilities of this version's agent in a VM.
func Capabilities() []string {
	return []string{CanInventory, CanServices, CanLiveness, CanStopSignal, CanVolumes, CanIdentityTokens,
		CanVolumeFiles, CanIdentityPort, CanUpdate}
}

// Outdated reports whether an agent with these abilities lacks one of this version's, and is no newer one.
func Outdated(abilities []string) bool {
	now := Capabilities()
	for _, c := range abilities {
		if !slices.Contains(now, c) {
			return false
		}
	}
	return slices.ContainsFunc(now, func(c string) bool { return !slices.Contains(abilities, c) })
}

// SFTPProgram is the path of the agent's SFTP server in a guest. Agents older than forkd 0.1.0 have
// none.
const SFTPProgram = "/run/forkd/forkd-sftp"

// MaxMessageBytes limits one RPC message in either direction. Larger data is streamed: output in
// chunks, file contents over /files.
const MaxMessageBytes = 16 << 20

// HeaderKillOnDisconnect on process.Start makes the agent kill the process and all its descendants
// when the caller disconnects. Without it a process outlives its caller, as E2B's clients expect.
// In a clone, the callers of the source do not count as disconnected.
const HeaderKillOnDisconnect = "Forkd-Kill-On-Disconnect"

// HeaderKeepalive is the idle time, in seconds, after which a stream carries a keepalive message.
const HeaderKeepalive = "Keepalive-Ping-Interval"

// HeaderOutputDropped in an answer to process.Connect in a clone is the number of lost bytes:
// output of the process from before this caller connected. Absent means 0.
const HeaderOutputDropped = "Forkd-Output-Dropped"

// HeaderTrees is in answers to filesystem.Filesystem from an agent with the routes of /files/tree.
const HeaderTrees = "Forkd-Trees"

// HeaderTreeBytes in an answer to GET /files/tree is the size of the tree's contents. It is absent
// if the agent did not count.
const HeaderTreeBytes = "Forkd-Tree-Bytes"

// KilledByKernel begins the error of a process killed by the guest's kernel.
const KilledByKernel = oomline.Killed

// HeaderHostTime is the host's wall clock at the time of a request, in nanoseconds since 1970. Only
// the daemon sets it. The agent uses it to correct a slow clock.
const HeaderHostTime = "Forkd-Host-Time"

// HostTime returns the current value for HeaderHostTime.
func HostTime() string { return strconv.FormatInt(time.Now().UnixNano(), 10) }

// HeaderAsRoot on filesystem.Filesystem and /files makes the agent act as root and give new files
// to the request's user, as E2B's envd does. Without it the agent uses the rights of that user.
// Only the host's own code may set it: the daemon's route to the agent removes it.
const HeaderAsRoot = "Forkd-As-Root"
