// Package control is the protocol between the daemon and forkd-net: which VMs
// there are, the wire and the policy of each, and what became of their flows.
// It has both ends, and neither knows what a policy means.
//
// JSON over a SEQPACKET unix socket, with descriptors; a body over 64 KiB is in
// a sealed memfd. Each side wants the other to be its own user or root. The
// server answers the requests of one connection in their order, so a Release
// behind a Bind finds it done. An audit subscription has a connection of its
// own: one that is read slowly loses lines and holds nobody up.
package control
