// Package netwire is what a VMM and forkd-net say to each other about a guest's
// flows: messages of one fixed size, each a packet of a SEQPACKET socket, and
// the descriptor that answers an Open. It opens nothing and decides nothing.
//
// Neither side trusts the other: Decode refuses whatever it would not have
// encoded, and of descriptors that may not come the kernel lets none in. The
// format is in docs/inside/formats/netwire.md.
package netwire
