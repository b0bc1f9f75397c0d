package net

import (
	"encoding/binary"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// room is the condition a refused frame waits for.
type room struct {
	wanted bool
	// anything marks a refusal because the device did not run. Otherwise published is the guest's
	// number of published buffers.
	anything  bool
	published uint16
}

// anew returns the condition for a new driver. Its buffers are counted from the beginning.
func (r room) anew() room { return room{wanted: r.wanted, anything: r.wanted} }

// met reports, once, whether there is more room than at the refusal. Otherwise the guest kicks at
// the next buffer.
func (r *room) met(q *virtio.Queue) bool {
	if !r.wanted {
		return false
	}
	if r.anything && q.Empty() {
		r.anything, r.published = false, q.NotifyNext()
	}
	if r.anything || q.Published() != r.published {
		*r = room{}
		return true
	}
	return false
}

// Receive implements Guest.
func (d *Device) Receive(h Header, frame []byte) bool {
	d.rx.mu.Lock()
	defer d.rx.mu.Unlock()
	if !d.rx.running() {
		d.rx.want = room{wanted: true, anything: true}
		return false
	}
	if d.flushResets() && d.put(h, frame) {
		return true
	}
	d.rx.want = room{wanted: true, published: d.rx.published}
	return false
}

// Offloads returns the offloads accepted by the guest's driver: frames with an incomplete checksum,
// and TCP segments longer than the MTU. Other frames are completed or lost.
func (d *Device) Offloads() (checksum, tso4, tso6 bool) {
	d.rx.mu.Lock()
	defer d.rx.mu.Unlock()
	f := d.rx.features
	return f&featureGuestCSUM != 0, f&featureGuestTSO4 != 0, f&featureGuestTSO6 != 0
}

// running reports whether guest memory may be accessed. The lock is held, as for all functions
// below.
func (r *receiver) running() bool { return r.queue != nil && !r.paused }

// flushResets resets the guest's inherited connections before it gets any other frame. It returns
// false if the guest has no room now.
func (d *Device) flushResets() bool {
	if !d.rx.running() {
		return false
	}
	for {
		frame := d.flows.Reset(d.rx.mac)
		if frame == nil {
			return true
		}
		if !d.put(Header{}, frame) {
			return false
		}
		d.flows.ResetDone()
	}
}

// put passes a frame to the guest, or drops it if the guest can never take it. It returns false if
// the guest has no room for it now; published then has the number of buffers, and the guest kicks
// at the next.
func (d *Device) put(h Header, frame []byte) bool {
	if len(frame) < etherSize || len(frame) > maxFrame || !d.rx.complete(&h, &frame) {
		return true
	}
	q := d.rx.queue
	for {
		before := q.Published()
		n, ok := d.rx.fill(h, frame)
		if ok {
			if n > 0 {
				q.Notify()
				d.flows.Delivered(frame)
			}
			return true
		}
		q.NotifyNext()
		if q.Published() == before {
			d.rx.published = before
			return false
		}
	}
}

// fill copies a frame into buffers of the guest, and returns their number. The number is 0 if all
// buffers the guest can ever have together are too small. fill returns false if more buffers would
// suffice.
func (r *receiver) fill(h Header, frame []byte) (n int, ok bool) {
	r.used = r.used[:0]
	for rest := frame; n == 0 || len(rest) > 0; n++ {
		single := n > 0 && r.features&featureMergeRxBuf == 0
		c, ok := (*virtio.Chain)(nil), false
		if !single {
			c, ok = r.pop(n)
		}
		if !ok {
			r.putBack(n)
			return 0, single || n > 0 && n == r.queue.Size()
		}
		off := 0
		if n == 0 {
			off = HeaderSize
		}
		done := c.Writable.CopyIn(off, rest)
		rest = rest[done:]
		r.used = append(r.used, virtio.Used{Head: c.Head, Written: uint32(off + done)})
	}
	var b [HeaderSize]byte
	h.Buffers = uint16(n)
	h.Encode(b[:])
	r.chains[0].Writable.CopyIn(0, b[:])
	r.queue.PushAll(r.used)
	return n, true
}

// pop takes the guest's next buffer, the n-th of a frame.
func (r *receiver) pop(n int) (*virtio.Chain, bool) {
	if n == len(r.chains) {
		r.chains = append(r.chains, virtio.Chain{})
	}
	c := &r.chains[n]
	if n == r.queue.Size() || !r.queue.Pop(c) {
		return nil, false
	}
	if len(c.Readable) > 0 || n == 0 && c.Writable.Len() < HeaderSize {
		r.queue.PutBack()
		r.queue.Fail(errRxBuffer)
		return nil, false
	}
	return c, true
}

func (r *receiver) putBack(n int) {
	for range n {
		r.queue.PutBack()
	}
}

// complete removes offloads the driver has not negotiated from a frame. It returns false if it
// cannot.
func (r *receiver) complete(h *Header, frame *[]byte) bool {
	switch h.GSOType &^ GSOECN {
	case GSONone:
	case GSOTCPv4:
		if r.features&featureGuestTSO4 == 0 {
			return false
		}
	case GSOTCPv6:
		if r.features&featureGuestTSO6 == 0 {
			return false
		}
	default:
		return false
	}
	if r.features&featureGuestCSUM != 0 {
		return true
	}
	if h.Flags&NeedsChecksum != 0 {
		at := int(h.ChecksumStart) + int(h.ChecksumOffset)
		if at+2 > len(*frame) {
			return false
		}
		*frame = append([]byte(nil), *frame...)
		binary.BigEndian.PutUint16((*frame)[at:], checksum((*frame)[h.ChecksumStart:]))
	}
	*h = Header{GSOType: h.GSOType, GSOSize: h.GSOSize, HeaderLen: h.HeaderLen}
	return true
}

// checksum returns an Internet checksum (RFC 1071) of b. The checksum field holds the sum of the
// pseudo header.
func checksum(b []byte) uint16 {
	var s uint64
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	if s = s ^ 0xffff; s == 0 {
		return 0xffff // RFC 768: in UDP, 0 means no checksum
	}
	return uint16(s)
}
