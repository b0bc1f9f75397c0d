// Package netd is the process forkd-net: it has the wires of all VMs of a host,
// has each flow judged, dials, and hands the connected socket over or relays. It
// decides nothing itself: Rules does, which tests replace.
//
// One goroutine reads the wires of all VMs, so that an idle VM has neither a stack
// nor a buffer; a flow has a few while it is being opened or relayed. A handed-over
// flow costs a descriptor and nothing else: forkd-net keeps a duplicate, by which it
// counts bytes, sees the end, and can cut it. The trap: with a duplicate open, the
// VMM's close alone ends no connection; it has to shut the socket down first
// (docs/inside/formats/netwire.md).
//
// A VMM is hostile. What it sends can cost it its own wire, and no more of
// anything than its limits say.
package netd
