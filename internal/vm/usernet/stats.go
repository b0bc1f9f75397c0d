package usernet

import "sync/atomic"

// Stats counts the frames, flows and refusals of an engine.
type Stats struct {
	Frames, Bytes       uint64 // from the guest
	FramesOut, BytesOut uint64 // to the guest, without the dropped ones

	BadFrames uint64 // malformed, or with an inconsistent header
	Spoofed   uint64 // sent from an address other than the guest's
	Ignored   uint64 // well-formed and not handled: multicast, other protocols
	Dropped   uint64 // frames to the guest without room
	Lost      uint64 // datagrams to a far end without room

	Flows, Dials uint64 // current numbers
	Opened       uint64 // established flows
	Refused      uint64 // flows refused by the dialer
	OverFlows    uint64 // refused at the limit of flows
	OverRate     uint64 // refused at the limit of new flows per second
	OverDials    uint64 // refused at the limit of concurrent dials
	Evicted      uint64 // idle flows of datagrams ended for new ones
}

// counters are the counters behind Stats.
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
