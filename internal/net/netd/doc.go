// Package netd is the process forkd-net. It owns the wires of all VMs of a host. For each flow it
// asks a judge, dials, and hands the connected socket over or relays. It makes no decisions itself:
// Rules does, and tests replace it.
//
// One goroutine reads the wires of all VMs, so an idle VM needs no stack or buffer. A flow has a
// few goroutines and buffers while it is opened or relayed. A handed-over flow costs only a
// descriptor: forkd-net keeps a duplicate, to count bytes, detect the end, and cut the flow. While
// the duplicate is open, the VMM's close alone does not end the connection; the VMM must shut the
// socket down first (docs/inside/formats/netwire.md).
//
// A VMM is hostile. Its messages can cost it its own wire, and other resources only up to its
// limits.
package netd
