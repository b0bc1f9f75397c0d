package vsock

// yieldEvery is the number of packets after which the transmit loop lets other goroutines take the
// lock.
const yieldEvery = 64

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

// drainTransmit handles the guest's packets. The lock is held, but released now and then: host data
// must reach even a guest that never stops sending.
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

// stepReset informs a restored guest of the end of its connections. Connections from the host wait
// until the guest has dropped its own, or the guest would drop them too.
func (d *Device) stepReset() {
	if !d.reset.step(d.event) {
		return
	}
	for _, c := range d.conns {
		if c.phase == phaseRequested {
			d.say(c, needRequest)
		}
	}
}

// popReceive takes a receive buffer into rxChain. If no buffer is available, it requests a kick.
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

// pushReceive completes rxChain as a packet. Its payload is in place.
func (d *Device) pushReceive(h header) {
	var b [headerSize]byte
	h.encode(&b)
	d.rxChain.Writable.CopyIn(0, b[:])
	d.rx.Push(d.rxChain.Head, headerSize+h.len)
}

// flushControl sends packets without data while there are receive buffers.
func (d *Device) flushControl() {
	if !d.running() || !d.out.any() {
		return
	}
	for d.out.any() && d.popReceive() {
		d.pushReceive(d.out.take(d.cid))
	}
	d.rx.Notify()
}

// say queues packets about a connection, unless the guest has forgotten it.
func (d *Device) say(c *conn, need needs) {
	if d.conns[c.key] != c {
		return
	}
	d.out.add(c, need)
}

func (d *Device) wakeWaiters() {
	if len(d.out.waiters) == 0 || !d.rx.EnableKicks() { // asks again if others took all
		return
	}
	d.out.wake()
}
