package members

import (
	"net/netip"
	"time"
)

const (
	// datagramIdle is the time after which a flow without connection ends.
	datagramIdle = time.Minute
	// handshakeIdle is the time for a connection that is not open yet or has ended.
	handshakeIdle = time.Minute
	// evictable is the idle time after which a connection gives way to a new one, if its member has
	// as many as it may have. It goes on if it has traffic again.
	evictable = 5 * time.Minute
)

// End is one end of a flow.
type End struct {
	Addr netip.Addr // of the member
	Port uint16     // of an echo request, its identifier
}

// key is a flow, from the member that opened it.
type key struct {
	protocol uint8
	from, to End
}

// Flow is a flow between two members.
type Flow struct {
	key
	Since time.Time // of its first packet
	Rule  string    // the deciding rule; empty for the default
	// Sent and Received are the bytes of IP from the member that opened it and to it.
	Sent, Received int64

	last     time.Time
	fin      [2]bool   // of each direction
	heard    [2]bool   // ack is valid
	ack      [2]uint32 // the last acknowledgement of each end, the next sequence number that it takes
	syn      uint32    // the sequence number after the first segment
	answered bool
}

// Protocol, From and To name the flow. From has opened it.
func (f *Flow) Protocol() uint8 { return f.protocol }

// From returns the end that has opened the flow.
func (f *Flow) From() End { return f.from }

// To returns the other end.
func (f *Flow) To() End { return f.to }

// Table follows the flows of a private network. Its owner locks it.
type Table struct {
	flows map[key]*Flow
	count map[netip.Addr]int // flows by the member that opened them
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{flows: map[key]*Flow{}, count: map[netip.Addr]int{}} }

// Find returns the flow of a packet between two members, and whether the packet goes in the
// direction in which the flow was opened. It returns nil for a packet of no flow.
func (t *Table) Find(p *Packet, from, to netip.Addr) (f *Flow, forward bool) {
	there := key{p.Protocol, End{from, p.SrcPort}, End{to, p.DstPort}}
	if p.Protocol == ICMP { // a member may ping itself: the type tells the direction
		if p.icmpType == echoRequest {
			return t.flows[there], true
		}
		return t.flows[key{ICMP, there.to, there.from}], false
	}
	if f = t.flows[there]; f != nil {
		return f, true
	}
	return t.flows[key{p.Protocol, there.to, there.from}], false
}

// Opened returns the number of flows that a member has opened.
func (t *Table) Opened(by netip.Addr) int { return t.count[by] }

// Add follows a new flow.
func (t *Table) Add(p *Packet, from, to netip.Addr, rule string, now time.Time) *Flow {
	f := &Flow{key: key{p.Protocol, End{from, p.SrcPort}, End{to, p.DstPort}}, Since: now, last: now, Rule: rule,
		syn: p.end()}
	t.flows[f.key] = f
	t.count[from]++
	return f
}

// Seen follows a packet of a flow.
func (t *Table) Seen(f *Flow, p *Packet, forward bool, now time.Time) {
	at := 0
	if f.last = now; forward {
		f.Sent += int64(p.Size())
	} else {
		f.Received += int64(p.Size())
		f.answered, at = true, 1
	}
	if p.Protocol != TCP {
		return
	}
	if p.flags&flagACK != 0 {
		f.heard[at], f.ack[at] = true, p.ack
	}
	f.fin[at] = f.fin[at] || p.flags&flagFIN != 0
}

// Remove forgets a flow. It returns false if the flow was forgotten before.
func (t *Table) Remove(f *Flow) bool {
	if t.flows[f.key] != f {
		return false
	}
	delete(t.flows, f.key)
	if t.count[f.from.Addr]--; t.count[f.from.Addr] == 0 {
		delete(t.count, f.from.Addr)
	}
	return true
}

// Of returns the flows of a member, in either direction.
func (t *Table) Of(addr netip.Addr) (all []*Flow) {
	for _, f := range t.flows {
		if f.from.Addr == addr || f.to.Addr == addr {
			all = append(all, f)
		}
	}
	return all
}

// Idle returns the flows that have ended without a last packet. With full, it includes the idle
// connections of a member that wants to open another.
func (t *Table) Idle(now time.Time, full netip.Addr) (all []*Flow) {
	for _, f := range t.flows {
		idle := now.Sub(f.last)
		switch {
		case f.protocol != TCP && idle >= datagramIdle,
			f.protocol == TCP && (!f.answered || f.fin[0] && f.fin[1]) && idle >= handshakeIdle,
			f.from.Addr == full && idle >= evictable:
			all = append(all, f)
		}
	}
	return all
}

// Reset returns a reset of a connection for one of its ends, as that end sees it: from a member to
// the guest's own address. It returns nil for flows of other protocols.
func (f *Flow) Reset(forOpener bool, guest netip.Addr) []byte {
	if f.protocol != TCP {
		return nil
	}
	src, port, at := f.from, f.to.Port, 1
	if forOpener {
		src, port, at = f.to, f.from.Port, 0
	}
	switch {
	case f.heard[at]:
		return reset(src.Addr, guest, src.Port, port, f.ack[at], 0, flagRST)
	case forOpener: // it waits for the answer to its first segment
		return reset(src.Addr, guest, src.Port, port, 0, f.syn, flagRST|flagACK)
	}
	return nil
}

// Reusable reports whether a packet begins another connection between the ends of this one.
func (f *Flow) Reusable(p *Packet, forward bool) bool {
	return p.Protocol == TCP && p.Opens() && (!forward || f.answered)
}
