// Package flows follows what a guest has open over its network device: its TCP
// connections and its UDP sessions, seen from the frames of both directions. A
// clone inherits them from its source, which goes on with them; the table tells
// what frames reset a clone's connections at once, and keeps its datagrams off
// the source's sessions. It is bounded, does no I/O and belongs to package net.
//
// The trap: frames of the guest may be anything. What they say can cost the
// guest its own connections, and nothing else.
package flows
