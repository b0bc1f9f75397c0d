// Package wire defines the protocol between the daemon and forkd-spawn: messages of one fixed size,
// each a packet of a SEQPACKET socket, with the descriptors of a VMM or the pidfd of its process.
// Packages client and server are the ends. A message's descriptors come in the order of its Files,
// and the receiver owns them.
package wire
