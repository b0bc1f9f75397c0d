package vsock

import (
	"errors"
	"golang.org/x/sys/unix"
)

// outcome is the reason why fill stopped.
type outcome uint8

const (
	fillAgain     outcome = iota // there may be more
	fillWaitHost                 // the socket has no data
	fillWaitGuest                // no credit, no buffer, paused
	fillDead
)

// fillBatch is the number of packets moved before other goroutines get the lock.
const fillBatch = 16

// run serves a connection until it is dead, then frees it.
func (c *conn) run() {
	if c.raw != nil {
		c.pump()
	}
	if c.sock != nil {
		_ = c.sock.Close() // waits for flush to leave the descriptor
	}
	c.d.mu.Lock()
	c.d.live--
	c.d.mu.Unlock()
	c.d.wg.Done()
}

// pump moves the host's bytes into guest buffers.
func (c *conn) pump() {
	fill := func(uintptr) bool {
		c.next = c.fill()
		return c.next != fillWaitHost // otherwise wait until the socket is readable
	}
	for {
		if err := c.raw.Read(fill); err != nil { // closed by another goroutine
			c.d.mu.Lock()
			c.d.kill(c, true)
			c.d.flushControl()
			c.d.mu.Unlock()
			return
		}
		switch c.next {
		case fillDead:
			return
		case fillWaitGuest:
			<-c.wake
		}
	}
}

// fill reads from the socket into receive buffers.
func (c *conn) fill() outcome {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if out, ok := c.mayFill(); !ok {
		return out
	}
	out := fillAgain
	moved := false
	for n := 0; n < fillBatch && out == fillAgain; n++ {
		if out = c.fillOne(); out == fillAgain {
			moved = true
		}
	}
	if moved && d.rx != nil {
		d.rx.Notify()
	}
	d.flushControl()
	d.checkBroken()
	if c.dead {
		return fillDead
	}
	return out
}

// mayFill reports whether data can be moved, and otherwise the event to wait for.
func (c *conn) mayFill() (outcome, bool) {
	switch d := c.d; {
	case c.dead:
		return fillDead, false
	case c.eof, c.guestDone&shutReceive != 0:
		c.eof = true
		return c.awaitHangup(), false
	case !d.running():
		return fillWaitGuest, false
	default:
		d.flushControl()
		if c.need&needResponse != 0 || d.out.any() {
			d.out.wait(c) // no buffer was free for it
			return fillWaitGuest, false
		}
		return fillAgain, true
	}
}

// fillOne moves one packet.
func (c *conn) fillOne() outcome {
	d := c.d
	credit := c.credit()
	if credit == 0 {
		if !c.asked {
			c.asked = true
			d.say(c, needCreditRequest)
		}
		return fillWaitGuest
	}
	if !d.popReceive() {
		d.out.wait(c)
		return fillWaitGuest
	}
	d.scratch = d.rxChain.Writable.Range(d.scratch[:0], headerSize, credit)
	n, err := readVec(c.fd, d.scratch)
	if n > 0 {
		h := c.header(opData)
		h.len = uint32(n)
		c.sent += uint32(n)
		d.pushReceive(h)
		c.handedOver()
		return fillAgain
	}
	d.rx.PutBack()
	switch {
	case errors.Is(err, unix.EAGAIN):
		return fillWaitHost
	case err != nil:
		d.kill(c, true)
		return fillDead
	default:
		c.eof = true
		return c.awaitHangup()
	}
}

// awaitHangup reports to the guest that the host sends no more, and once the host has closed
// completely, that it does not read either.
func (c *conn) awaitHangup() outcome {
	done := c.hostDone | shutSend
	if hungUp(c.fd) {
		done |= shutReceive
	}
	if done != c.hostDone {
		c.hostDone = done
		c.d.say(c, needShutdown)
		c.d.flushControl()
	}
	if done == shutBoth {
		return fillWaitGuest // for the guest's reset
	}
	return fillWaitHost
}
