package memberlink

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/net/framelink"
	"github.com/forkd/forkd/internal/vm/virtio/net"
)

const (
	etherSize = 14
	typeIPv4  = 0x0800
	atDst     = etherSize + 16
	// frameMax is the longest frame of a link: an IP packet of any length behind Ethernet.
	frameMax = etherSize + 65535
)

// Link is the place of a VM's link. It is empty until forkd-net has sent one. The zero value is
// ready for use.
type Link struct {
	mu     sync.Mutex // guards the fields below
	file   *os.File   // nil without a link
	out    *framelink.Writer
	engine *Engine // nil until the guest has one
	wake   func()  // called when there is a link
	closed bool
}

// Wake sets the function to call when there is a first link: a member may get packets before its
// guest has sent any.
func (l *Link) Wake(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake = f
}

// Exists reports whether the VM is a member.
func (l *Link) Exists() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file != nil
}

// Set makes f the link, replacing an earlier one. It owns the file, also after an error.
func (l *Link) Set(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		f.Close()
		return
	}
	before, out, wake := l.file, l.out, l.wake
	l.file, l.out = f, framelink.New(raw, nil)
	if l.engine != nil {
		l.engine.read(f)
	}
	l.mu.Unlock()
	if before != nil {
		before.Close() // ends its reader
		out.Close()
	}
	if wake != nil {
		wake()
	}
}

// Close ends the link. The engine is closed before.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file != nil {
		l.file.Close()
	}
	if l.out != nil {
		l.out.Close() // does not wait: the file is closed
	}
}

// Guest is the guest's end with the address that its frames have.
type Guest interface {
	net.Guest
	// MAC returns the guest's hardware address.
	MAC() [6]byte
}

// Engine joins the link and another engine of the guest.
type Engine struct {
	inner net.Engine
	guest Guest
	link  *Link

	// room has a value after Writable. One is enough, because the reader tries again in any case.
	room   chan struct{}
	closed chan struct{}
	once   sync.Once // of Close
	wg     sync.WaitGroup

	// State of Transmit. Its calls come one at a time.
	header [net.HeaderSize]byte
}

var _ net.Engine = (*Engine)(nil)

// Join returns an engine that passes packets to members to the link and other frames to inner.
func (l *Link) Join(g Guest, inner net.Engine) *Engine {
	e := &Engine{inner: inner, guest: g, link: l, room: make(chan struct{}, 1), closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.engine = e
	if l.file != nil {
		e.read(l.file)
	}
	return e
}

// Transmit implements net.Engine.
func (e *Engine) Transmit(h net.Header, frame []byte) {
	if out := e.link.to(frame); out != nil {
		h.Encode(e.header[:])
		out.Send(e.header[:], frame)
		return
	}
	e.inner.Transmit(h, frame)
}

// to returns the link if a frame is for a member and there is a link.
func (l *Link) to(frame []byte) *framelink.Writer {
	if len(frame) < etherSize+20 || binary.BigEndian.Uint16(frame[12:]) != typeIPv4 ||
		!guestnet.Members4.Contains(netip.AddrFrom4([4]byte(frame[atDst:]))) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out
}

// read passes frames from a link to the guest, until the link ends.
func (e *Engine) read(f *os.File) {
	e.wg.Go(func() {
		buf := make([]byte, net.HeaderSize+frameMax)
		for {
			n, err := f.Read(buf)
			if err != nil || n == 0 {
				return
			}
			if n < net.HeaderSize+etherSize {
				continue
			}
			frame := buf[net.HeaderSize:n]
			mac := e.guest.MAC()
			copy(frame, mac[:])
			copy(frame[6:], guestnet.GatewayMAC())
			if !e.give(net.DecodeHeader(buf), frame) {
				return
			}
		}
	})
}

// give waits until the guest has room for a frame. It returns false if the engine is being closed.
func (e *Engine) give(h net.Header, frame []byte) bool {
	h.Buffers = 0 // set by the device
	for !e.guest.Receive(h, frame) {
		select {
		case <-e.room:
		case <-e.closed:
			return false
		}
	}
	return true
}

// Writable implements net.Engine.
func (e *Engine) Writable() {
	select {
	case e.room <- struct{}{}:
	default:
	}
	e.inner.Writable()
}

// Close implements net.Engine. It is idempotent.
func (e *Engine) Close() {
	e.once.Do(func() {
		close(e.closed)
		l := e.link
		l.mu.Lock()
		if l.file != nil {
			l.file.Close()
			l.file = nil
		}
		l.closed = true
		out := l.out
		l.out = nil
		l.mu.Unlock()
		if out != nil {
			out.Close()
		}
	})
	e.wg.Wait()
	e.inner.Close()
}
