// Package wire is what travels between the daemon and a VMM process: the
// messages of the control socket with their descriptors and tables, errors as
// codes, and the descriptors and arguments that the process is started with.
// Package client is the daemon's end, package server the VMM's; both are built on
// this one, so that they cannot drift apart. It knows nothing of KVM. The trap:
// descriptors in a message are duplicated for the receiver; the sender still
// closes its own.
//
// The control socket is a Unix SOCK_SEQPACKET socket; each message is one JSON
// object of at most MaxMessage bytes, with descriptors as SCM_RIGHTS.
package wire
