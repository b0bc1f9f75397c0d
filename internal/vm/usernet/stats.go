package usernet

import "sync/atomic"

// Stats counts what an engine saw and what it refused.
type Stats struct {
	Frames, Bytes       uint64 // from the guest
	FramesOut, BytesOut uint64 // to the guest; what was dropped is not among them

	BadFrames uint64 // malformed, or with a header that does not fit
	Spoofed   uint64 // sent from an address that is not the guest's
	Ignored   uint64 // well-formed and of no concern: multicast, other protocols
	Dropped   uint64 // frames to the guest that found no room
	Lost      uint64 // datagrams to a far end that found no room

	Flows, Dials uint64 // that there are now
	Opened       uint64 // flows that came about
	Refused      uint64 // flows that the dialer refused
	OverFlows    uint64 // refused for want of room among flows
	OverRate     uint64 // refused for too many new ones in a second
	OverDials    uint64 // refused for too many dials under way
	Evicted      uint64 // idle flows of datagrams that ended for new ones
}

// counters are what Stats is made of.
type counters struct {
	frames, bytes, framesOut, bytesOut        atomic.Uint64
	badFrames, spoofed, ignored               atomic.Uint64
	dropped, lost                             atomic.Uint64
	opened, refused                           atomic.Uint64
	overFlows, overRate, overDials, evictions atomic.Uint64
}

func (c *counters) stats() Stats {
	return Stats{
		Frames: c.frames.Load(), Bytes: c.bytes.Load(),
		FramesOut: c.framesOut.Load(), BytesOut: c.bytesOut.Load(),
		BadFrames: c.badFrames.Load(), Spoofed: c.spoofed.Load(), Ignored: c.ignored.Load(),
		Dropped: c.dropped.Load(), Lost: c.lost.Load(),
		Opened: c.opened.Load(), Refused: c.refused.Load(),
		OverFlows: c.overFlows.Load(), OverRate: c.overRate.Load(), OverDials: c.overDials.Load(),
		Evicted: c.evictions.Load(),
	}
}
