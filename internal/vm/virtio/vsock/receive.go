package vsock

import (
	"errors"
	"fmt"

	"github.com/forkd/forkd/internal/vm/virtio"
	"golang.org/x/sys/unix"
)

// receive handles one packet from the guest. The lock is held.
func (d *Device) receive(h header, packet virtio.Buffers) {
	if h.srcCID != d.cid || h.dstCID != HostCID {
		return // unknown address; after a restore also the old address
	}
	k := key{guest: h.srcPort, host: h.dstPort}
	c := d.conns[k]
	switch {
	case h.op == opReset: // never answered with a reset
		if c != nil {
			d.kill(c, false)
		}
	case h.kind != typeStream:
		d.out.addReset(k)
	case c == nil && h.op == opRequest:
		d.request(k, h)
	case c == nil:
		d.out.addReset(k)
	default:
		c.guestBuf, c.guestForward = h.bufAlloc, h.fwdBack
		if !c.handle(h, packet) {
			d.kill(c, true)
			return
		}
		if c.asked && c.credit() > 0 {
			c.asked = false
			c.poke()
		}
	}
}

// handle processes a packet of a known connection. It returns false for a violation.
func (c *conn) handle(h header, packet virtio.Buffers) bool {
	switch {
	case h.op == opResponse:
		return c.accepted()
	case c.phase != phaseOpen:
		return false
	case h.op == opData:
		return c.deliver(packet, int(h.len))
	case h.op == opShutdown:
		return c.shutdown(h.flags)
	case h.op == opCreditRequest:
		c.d.say(c, needCreditUpdate)
		return true
	default:
		return h.op == opCreditUpdate
	}
}

// request handles the guest's request to connect to a host port.
func (d *Device) request(k key, h header) {
	if d.dialer == nil || d.closed || d.live >= MaxConns || d.dialing >= MaxDials {
		d.out.addReset(k)
		return
	}
	d.dialing++
	c := d.newConn(k, phaseDialing)
	c.guestBuf, c.guestForward = h.bufAlloc, h.fwdBack
	go c.dial()
}

// dial opens the host end, then serves the connection.
func (c *conn) dial() {
	sock, err := c.d.dialer.DialHost(c.d.root, c.host)
	if sock == nil && err == nil {
		err = errRefused
	}
	c.d.mu.Lock()
	c.d.dialing--
	switch {
	case err != nil:
		c.d.kill(c, true)
	case c.dead:
		c.sock = sock // for finish
	case c.attach(sock) != nil:
		c.sock = sock
		c.d.kill(c, true)
	default:
		c.phase = phaseOpen
		c.d.say(c, needResponse)
	}
	c.d.flushControl()
	c.d.mu.Unlock()
	c.run()
}

// accepted handles the guest's answer to a request.
func (c *conn) accepted() bool {
	if c.phase != phaseRequested || c.need&needRequest != 0 {
		return false
	}
	c.phase = phaseOpen
	close(c.answered)
	if c.greet {
		// Written here, before any data of the guest can be. The socket is new, so it either takes
		// the few bytes immediately or is broken.
		line := fmt.Appendf(nil, "OK %d\n", c.host)
		if n, err := writeVec(c.fd, [][]byte{line}); err != nil || n != len(line) {
			return false
		}
	}
	return true
}

// deliver moves n bytes of payload towards the host's socket.
func (c *conn) deliver(packet virtio.Buffers, n int) bool {
	if c.guestDone&shutSend != 0 || c.hostDone&shutReceive != 0 {
		return false
	}
	if uint64(c.received-c.forwarded)+uint64(n) > bufAlloc {
		return false // the guest ignores credit
	}
	if n > 0 {
		c.answeredBack()
	}
	c.received += uint32(n)
	off := headerSize
	if !c.flushing && n > 0 {
		c.d.scratch = packet.Range(c.d.scratch[:0], off, n)
		done, err := writeVec(c.fd, c.d.scratch)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return false
		}
		c.forwarded += uint32(done)
		c.creditBack()
		off, n = off+done, n-done
	}
	return n == 0 || c.queue(packet, off, n)
}

// queue keeps the bytes not taken by the socket and starts to flush them.
func (c *conn) queue(packet virtio.Buffers, off, n int) bool {
	if c.d.backlog+n > maxBacklog {
		return false
	}
	c.d.backlog += n
	at := len(c.backlog)
	c.backlog = append(c.backlog, make([]byte, n)...)
	packet.CopyOut(c.backlog[at:], off)
	if !c.flushing {
		c.flushing = true
		c.d.wg.Go(c.flush)
	}
	return true
}

// flush writes the backlog as the host reads it. It accesses guest memory only through
// flushControl, which checks whether it may.
func (c *conn) flush() {
	_ = c.raw.Write(func(uintptr) (done bool) { // fails only if c is dead
		c.d.mu.Lock()
		defer c.d.mu.Unlock()
		return c.flushSome()
	})
}

func (c *conn) flushSome() (done bool) {
	if c.dead {
		return true
	}
	for len(c.backlog) > 0 {
		n, err := writeVec(c.fd, [][]byte{c.backlog})
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			c.d.kill(c, true)
			c.d.flushControl()
			return true
		}
		c.backlog = c.backlog[n:]
		c.d.backlog -= n
		c.forwarded += uint32(n)
	}
	c.creditBack()
	if len(c.backlog) == 0 {
		c.backlog, c.flushing, done = nil, false, true
		c.applyShutdown()
	}
	c.d.flushControl()
	return done
}

// shutdown handles the guest's half or full close.
func (c *conn) shutdown(flags uint32) bool {
	c.guestDone |= flags & shutBoth
	if c.guestDone&shutReceive != 0 {
		_ = unix.Shutdown(c.fd, unix.SHUT_RD)
	}
	c.applyShutdown()
	return true
}

// applyShutdown closes the host's side, after the bytes before the guest's close.
func (c *conn) applyShutdown() {
	all := c.guestDone == shutBoth
	if all && c.d.conns[c.key] == c {
		// virtio 1.2 §5.10.6.6: a reset confirms a full close. The guest need not wait for a slow
		// host; the rest is flushed separately.
		delete(c.d.conns, c.key)
		c.d.out.addReset(c.key)
		c.need = 0
	}
	switch {
	case c.flushing:
	case all:
		c.d.kill(c, false)
	case c.guestDone&shutSend != 0:
		_ = unix.Shutdown(c.fd, unix.SHUT_WR)
	}
}
