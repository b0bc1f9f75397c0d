package peers

import "context"

// Absent is a peer that this program cannot measure. The table lists it with the reason.
type Absent struct{ Peer, Why string }

// Name implements Peer.
func (a Absent) Name() string { return a.Peer }

// Available implements Peer.
func (a Absent) Available() error { return missing("%s", a.Why) }

// Prepare implements Peer.
func (a Absent) Prepare(context.Context) error { return a.Available() }

// Start implements Peer.
func (a Absent) Start(context.Context, int) (Guest, error) { return nil, a.Available() }

// Close implements Peer.
func (a Absent) Close() error { return nil }
