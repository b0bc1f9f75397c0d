// Package netwire is the protocol between a VMM and forkd-net about a guest's flows. Messages have
// a fixed size, and each is a packet of a SEQPACKET socket. The answer to an Open comes with a
// descriptor. The package opens no flows and makes no decisions.
//
// Neither side trusts the other. Decode refuses all messages that Encode would not make, and the
// kernel drops descriptors that are not allowed. The format is described in
// docs/inside/formats/netwire.md.
package netwire
