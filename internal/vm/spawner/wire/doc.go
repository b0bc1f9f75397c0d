// Package wire is what the daemon and forkd-spawn say to each other: messages of one fixed
// size, each a packet of a SEQPACKET socket, with the descriptors of a VMM or the one of its
// process. It opens nothing and decides nothing. Packages client and server are the ends.
// The trap: a message's descriptors come in the order of its Files, and belong to who received it.
package wire
