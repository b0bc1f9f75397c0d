package vsock

import (
	"encoding/binary"

	"github.com/forkd/forkd/internal/virtio"
)

// resetPhase is how far a restored device is with telling the guest.
type resetPhase uint8

const (
	resetDone    resetPhase = iota
	resetWanted             // the event is still to be sent
	resetPending            // sent; the guest has not given the buffer back yet
)

const (
	eventSize           = 4
	eventTransportReset = 0 // virtio 1.2 §5.10.6.7

	// yieldEvery is after how many packets the transmit loop lets others in.
	yieldEvery = 64
)

// Kick implements virtio.Device.
func (d *Device) Kick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running() {
		return
	}
	d.stepReset()
	d.flushControl()
	d.wakeWaiters()
	d.drainTransmit()
	d.checkBroken()
}

// checkBroken closes the host's sockets once the driver broke the device.
func (d *Device) checkBroken() {
	if d.rx != nil && d.rx.Broken() {
		d.killAll(false)
	}
}

// drainTransmit handles what the guest sends. The lock is held, but given up
// now and then, so that a guest that never stops sending can be received from.
func (d *Device) drainTransmit() {
	for more := true; more; more = d.tx.EnableKicks() {
		d.tx.DisableKicks()
		for n := 1; d.leaving.Load() == 0 && d.tx.Pop(&d.txChain); n++ {
			h, err := parsePacket(&d.txChain)
			if err != nil {
				d.tx.Fail(err)
				return
			}
			d.receive(h, d.txChain.Readable)
			d.tx.Push(d.txChain.Head, 0)
			d.flushControl()
			if n%yieldEvery != 0 {
				continue
			}
			d.tx.Notify()
			d.mu.Unlock()
			d.mu.Lock()
			if !d.running() {
				return
			}
		}
		d.tx.Notify()
		if d.leaving.Load() != 0 {
			return
		}
	}
}

// stepReset tells a restored guest that its connections are gone. The guest
// gives the event's buffer back after it has dropped them; connections from
// the host are held until then, or the guest would drop those too.
func (d *Device) stepReset() {
	switch d.reset {
	case resetWanted:
		if d.event.Size() == 0 { // a driver without events drops nothing either
			d.reset = resetDone
			return
		}
		d.sendReset()
	case resetPending:
		if d.event.Published() != d.published {
			d.reset = resetDone
			for _, c := range d.conns {
				if c.phase == phaseRequested {
					d.say(c, needRequest)
				}
			}
		}
	}
}

func (d *Device) sendReset() {
	// Asked before the event is visible: the buffer comes back after that.
	d.published = d.event.NotifyNext()
	var c virtio.Chain
	if !d.event.Pop(&c) {
		if !d.event.EnableKicks() || !d.event.Pop(&c) {
			return
		}
		d.published = d.event.NotifyNext()
	}
	if len(c.Readable) > 0 || c.Writable.Len() < eventSize {
		d.event.Fail(errEventBuffer)
		return
	}
	var e [eventSize]byte
	binary.LittleEndian.PutUint32(e[:], eventTransportReset)
	c.Writable.CopyIn(0, e[:])
	d.event.Push(c.Head, eventSize)
	d.event.Notify()
	d.reset = resetPending
}

// popReceive takes a receive buffer into rxChain. If there is none it asks for
// a kick.
func (d *Device) popReceive() bool {
	for !d.rx.Pop(&d.rxChain) {
		if !d.rx.EnableKicks() {
			return false
		}
	}
	if len(d.rxChain.Readable) > 0 || d.rxChain.Writable.Len() < headerSize {
		d.rx.Fail(errRxBuffer)
		return false
	}
	return true
}

// pushReceive completes rxChain as a packet whose payload is in place.
func (d *Device) pushReceive(h header) {
	var b [headerSize]byte
	h.encode(&b)
	d.rxChain.Writable.CopyIn(0, b[:])
	d.rx.Push(d.rxChain.Head, headerSize+h.len)
}

// flushControl sends packets without data while there are receive buffers.
func (d *Device) flushControl() {
	if !d.running() || !d.hasControl() {
		return
	}
	for d.hasControl() && d.popReceive() {
		d.pushReceive(d.takeControl())
	}
	d.rx.Notify()
}

// hasControl also forgets connections that have nothing to say any more.
func (d *Device) hasControl() bool {
	for len(d.control) > 0 && d.control[0].need == 0 {
		d.control[0].queued = false
		d.control = d.control[1:]
	}
	if len(d.control) == 0 {
		d.control = nil
	}
	return len(d.control) > 0 || len(d.resets) > 0
}

// takeControl builds the next packet. Resets go first, so that none hits a
// newer connection of the same ports.
func (d *Device) takeControl() header {
	if len(d.resets) > 0 {
		k := d.resets[0]
		if d.resets = d.resets[1:]; len(d.resets) == 0 {
			d.resets = nil
		}
		return d.header(k, opReset)
	}
	return d.control[0].takeNeed()
}

// header is a packet to the guest without credit.
func (d *Device) header(k key, op uint16) header {
	return header{srcCID: HostCID, dstCID: d.cid, srcPort: k.host, dstPort: k.guest, kind: typeStream, op: op}
}

// say queues packets about a connection, unless the guest has forgotten it.
func (d *Device) say(c *conn, need needs) {
	if d.conns[c.key] != c {
		return
	}
	c.need |= need
	if !c.queued {
		c.queued = true
		d.control = append(d.control, c)
	}
}

// sayReset queues a reset for a connection that is not in the table.
func (d *Device) sayReset(k key) {
	if len(d.resets) < maxResets {
		d.resets = append(d.resets, k)
	}
}

// wait notes that c wants a receive buffer.
func (d *Device) wait(c *conn) {
	if !c.waiting {
		c.waiting = true
		d.waiters = append(d.waiters, c)
	}
}

func (d *Device) wakeWaiters() {
	if len(d.waiters) == 0 || !d.rx.EnableKicks() { // asks anew if others took all
		return
	}
	for _, c := range d.waiters {
		c.waiting = false
		c.poke()
	}
	d.waiters = d.waiters[:0]
}
