// Package flows tracks the open flows of a guest on its network device, its TCP connections and UDP
// sessions, from the frames of both directions. A clone inherits them from its source, which
// continues to use them. For a clone, the table builds frames to reset its connections immediately,
// and keeps its datagrams off the source's sessions. The table is bounded, does no I/O and belongs
// to package net.
//
// Frames of the guest may have any content. They can cost the guest its own connections, and have
// no other effect.
package flows
