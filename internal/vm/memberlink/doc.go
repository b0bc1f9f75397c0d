// Package memberlink is the VMM's end of a private network. A link is a socket to forkd-net with one
// Ethernet frame, and its virtio header, in each message. The guest's packets to other members go
// there and all others to the engine beside it. The package reads no more of a frame than its
// destination; forkd-net checks the rest.
package memberlink
