package net

import "errors"

// batch is the number of the guest's frames after which its other queues are checked.
const batch = 64

// Kick implements virtio.Device.
func (d *Device) Kick() {
	d.tx.mu.Lock()
	defer d.tx.mu.Unlock()
	d.tx.countInherited()
	for more := true; more && d.tx.queue != nil && !d.tx.paused; more = d.transmitBatch() {
		d.attendReceive()
		d.serveControl()
	}
}

// countInherited records, once, the frames a restored guest's source was about to send. The guest
// may have added some since it started; the device starts moments later, or more under load.
func (t *transmitter) countInherited() {
	if t.restored && t.queue != nil && !t.paused {
		t.restored, t.inherited = false, t.queue.Available()
	}
}

// attendReceive does the work waiting for receive buffers. The lock of tx is held.
func (d *Device) attendReceive() {
	d.rx.mu.Lock()
	d.flushResets()
	wake := d.rx.running() && d.rx.want.met(d.rx.queue)
	d.rx.mu.Unlock()
	if wake && d.tx.engine != nil {
		d.tx.engine.Writable()
	}
}

// serveControl answers commands. The lock of tx is held.
func (d *Device) serveControl() {
	q := d.tx.control
	if q.Empty() {
		return
	}
	for more := true; more && d.leaving.Load() == 0; more = q.EnableKicks() {
		for d.leaving.Load() == 0 && q.Pop(&d.tx.chain) {
			answer, err := d.control(&d.tx.chain)
			if err != nil {
				q.Fail(err)
				return
			}
			d.tx.chain.Writable.CopyIn(0, []byte{answer})
			q.Push(d.tx.chain.Head, 1)
		}
		q.Notify()
	}
}

// transmitBatch reads some of the guest's frames, once the network is open. It reports whether
// there are more. The lock of tx is held.
func (d *Device) transmitBatch() (more bool) {
	if !d.open.Load() || d.newEngine == nil {
		return false
	}
	q := d.tx.queue
	defer q.Notify()
	q.DisableKicks()
	for range batch {
		switch {
		case d.leaving.Load() != 0:
			return false
		case !q.Pop(&d.tx.chain):
			return q.EnableKicks()
		}
		h, frame, err := d.tx.parseFrame(&d.tx.chain)
		switch {
		case err == nil:
			if d.tx.inherited > 0 {
				d.flows.Inherit(frame)
			}
			d.transmit(h, frame)
		case !errors.Is(err, errFrame):
			q.Fail(err)
			return false
		}
		d.tx.inherited = max(d.tx.inherited-1, 0)
		q.Push(d.tx.chain.Head, 0)
	}
	return true
}

// transmit passes the engine a frame, unless it belongs to a session of the guest's source.
func (d *Device) transmit(h Header, frame []byte) {
	answer, pass := d.flows.Sent(frame)
	if !pass {
		d.rx.mu.Lock()
		defer d.rx.mu.Unlock()
		if d.rx.running() {
			d.put(Header{}, answer) // lost if the guest has no room, as any such message may be
		}
		return
	}
	if d.startEngine() {
		d.tx.engine.Transmit(h, frame)
	}
}
