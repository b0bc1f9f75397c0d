package vsock

import "slices"

// outbox holds the packets and connections waiting for the guest's receive buffers. The device's
// lock guards it.
type outbox struct {
	control []*conn // have packets without data to send
	resets  []key   // of connections in no table
	waiters []*conn // want a receive buffer for data
}

// add records a connection's packets to send.
func (o *outbox) add(c *conn, need needs) {
	c.need |= need
	if !c.queued {
		c.queued = true
		o.control = append(o.control, c)
	}
}

// addReset queues a reset for a connection outside the table.
func (o *outbox) addReset(k key) {
	if len(o.resets) < maxResets {
		o.resets = append(o.resets, k)
	}
}

// wait adds c to the connections waiting for a receive buffer.
func (o *outbox) wait(c *conn) {
	if !c.waiting {
		c.waiting = true
		o.waiters = append(o.waiters, c)
	}
}

// wake makes all waiting connections try again.
func (o *outbox) wake() {
	for _, c := range o.waiters {
		c.waiting = false
		c.poke()
	}
	o.waiters = o.waiters[:0]
}

// forget removes a dead connection from the lists. They must not grow while the guest provides no
// receive buffers.
func (o *outbox) forget(c *conn) {
	same := func(other *conn) bool { return other == c }
	if c.queued {
		o.control = slices.DeleteFunc(o.control, same)
	}
	if c.waiting {
		o.waiters = slices.DeleteFunc(o.waiters, same)
	}
	c.queued, c.waiting = false, false
}

// any reports whether there is a packet to send. It also removes connections without pending
// packets.
func (o *outbox) any() bool {
	for len(o.control) > 0 && o.control[0].need == 0 {
		o.control[0].queued = false
		o.control = o.control[1:]
	}
	if len(o.control) == 0 {
		o.control = nil
	}
	return len(o.control) > 0 || len(o.resets) > 0
}

// take builds the next packet, which must exist, for the guest with address cid. Resets go first,
// so none hits a newer connection of the same ports.
func (o *outbox) take(cid uint64) header {
	if len(o.resets) > 0 {
		k := o.resets[0]
		if o.resets = o.resets[1:]; len(o.resets) == 0 {
			o.resets = nil
		}
		return headerOf(cid, k, opReset)
	}
	return o.control[0].takeNeed()
}

// headerOf returns a packet header without credit, for the guest with address cid.
func headerOf(cid uint64, k key, op uint16) header {
	return header{srcCID: HostCID, dstCID: cid, srcPort: k.host, dstPort: k.guest, kind: typeStream, op: op}
}
