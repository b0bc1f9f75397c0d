// Package vmmctl is how the daemon talks to one VMM process: spawning it,
// handing it descriptors, and the request and event messages on its control
// socket. Client side (Process) and server side (Serve) stand here together, so
// that they cannot drift apart. It knows nothing of KVM. The trap: descriptors
// in a message are duplicated for the receiver; the sender still closes its own.
//
// The control socket is a Unix SOCK_SEQPACKET socket; each message is one JSON
// object of at most MaxMessage bytes, with descriptors as SCM_RIGHTS.
package vmmctl
