// Package wire defines the protocol between the daemon and a VMM process: the messages of the
// control socket with their descriptors and tables, the encoding of errors as codes, and the
// descriptors and arguments of a new process. Package client is the daemon's end, package server
// the VMM's. Both use this package, so they cannot diverge. The package does not know KVM.
//
// The control socket is a Unix SOCK_SEQPACKET socket. Each message is one JSON object of at most
// MaxMessage bytes, with descriptors as SCM_RIGHTS. Descriptors in a message are duplicated for the
// receiver; the sender still closes its own.
package wire
