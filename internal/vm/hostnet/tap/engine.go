package tap

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/virtio/net"
)

// frameMax is the longest frame that a tap gives: 64 KiB of IP behind Ethernet with a VLAN tag.
const frameMax = 14 + 4 + 65535

// Config is what an engine is made of.
type Config struct {
	Guest net.Guest
	// File is the tap; the engine closes it.
	File *os.File
	// Offloads tells what the guest's driver takes; nil: frames that are whole.
	Offloads func() (checksum, tso4, tso6 bool)
	// Warn is told of the tap's end, once; may be nil.
	Warn func(error)
}

// Engine copies frames between a guest and a tap.
type Engine struct {
	guest    net.Guest
	file     *os.File
	raw      syscall.RawConn
	offloads func() (checksum, tso4, tso6 bool)
	warn     func(error)
	count    counters

	// room has a value after Writable: one is enough, as the reader tries again in any case.
	room   chan struct{}
	closed chan struct{}
	once   sync.Once // of Close
	wg     sync.WaitGroup

	// What Transmit works with; its calls come one at a time.
	header [net.HeaderSize]byte
	parts  [2][]byte
	write  func(fd uintptr) bool // made once: a frame costs no allocation
	failed error                 // of the last write
	set    bool                  // the tap was told what the driver takes, which has begun
}

// Stats count frames, without those that the device refused. Dropped are the guest's that the
// tap did not take: it is down, or the kernel found the header wrong.
type Stats struct {
	FramesIn, BytesIn   uint64 // from the guest
	FramesOut, BytesOut uint64 // to it
	Dropped             uint64
}

type counters struct{ framesIn, bytesIn, framesOut, bytesOut, dropped atomic.Uint64 }

var _ net.Engine = (*Engine)(nil)

// New makes an engine, which owns the file from now on, whatever comes of it.
func New(c Config) (*Engine, error) {
	defer c.File.Close()
	file, err := pollable(c.File)
	if err != nil {
		return nil, fmt.Errorf("take over tap: %w", err)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("take over tap: %w", err)
	}
	e := &Engine{
		guest: c.Guest, file: file, raw: raw, offloads: c.Offloads, warn: c.Warn,
		room: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	e.write = func(fd uintptr) bool {
		_, e.failed = unix.Writev(int(fd), e.parts[:])
		return true // a tap that has no room loses the frame: the guest's other queues do not wait
	}
	e.setOffloads()
	e.wg.Go(e.receive)
	return e, nil
}

// setOffloads has the tap leave to the guest what its driver takes. A tap that cannot do so
// gives whole frames.
func (e *Engine) setOffloads() {
	flags := 0
	if e.offloads != nil {
		checksum, tso4, tso6 := e.offloads()
		for _, o := range []struct {
			on   bool
			flag int
		}{{checksum, unix.TUN_F_CSUM}, {checksum && tso4, unix.TUN_F_TSO4}, {checksum && tso6, unix.TUN_F_TSO6}} {
			if o.on {
				flags |= o.flag
			}
		}
	}
	_ = e.raw.Control(func(fd uintptr) { _ = unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, flags) })
}

// Transmit implements net.Engine.
func (e *Engine) Transmit(h net.Header, frame []byte) {
	if !e.set { // a guest that boots had no driver when the engine was made
		e.set = true
		e.setOffloads()
	}
	h.Encode(e.header[:])
	e.parts = [2][]byte{e.header[:], frame}
	err := e.raw.Write(e.write)
	e.parts = [2][]byte{}
	if err != nil || e.failed != nil {
		e.count.dropped.Add(1)
		return
	}
	e.count.framesIn.Add(1)
	e.count.bytesIn.Add(uint64(len(frame)))
}

// receive gives the guest what comes from the tap. Of what finds no room one frame waits here,
// and more in the tap's own queue, whose length is the operator's (txqueuelen).
func (e *Engine) receive() {
	buf := make([]byte, net.HeaderSize+frameMax)
	for {
		n, err := e.file.Read(buf)
		if err != nil {
			e.ended(err)
			return
		}
		if n <= net.HeaderSize {
			continue
		}
		if !e.give(net.DecodeHeader(buf), buf[net.HeaderSize:n]) {
			return
		}
	}
}

// give waits until the guest has room for a frame; false: the engine is being closed.
func (e *Engine) give(h net.Header, frame []byte) bool {
	h.Buffers = 0 // the device's to say
	for !e.guest.Receive(h, frame) {
		select {
		case <-e.room:
		case <-e.closed:
			return false
		}
	}
	e.count.framesOut.Add(1)
	e.count.bytesOut.Add(uint64(len(frame)))
	return true
}

func (e *Engine) ended(err error) {
	if e.warn != nil && !errors.Is(err, os.ErrClosed) {
		e.warn(fmt.Errorf("the tap gives no more frames: %w", err))
	}
}

// Writable implements net.Engine.
func (e *Engine) Writable() {
	select {
	case e.room <- struct{}{}:
	default:
	}
}

// Stats are the counts so far.
func (e *Engine) Stats() Stats {
	c := &e.count
	return Stats{
		FramesIn: c.framesIn.Load(), BytesIn: c.bytesIn.Load(),
		FramesOut: c.framesOut.Load(), BytesOut: c.bytesOut.Load(), Dropped: c.dropped.Load(),
	}
}

// Close implements net.Engine. It is idempotent.
func (e *Engine) Close() {
	e.once.Do(func() {
		close(e.closed)
		e.file.Close()
	})
	e.wg.Wait()
}
