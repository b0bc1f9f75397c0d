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

// frameMax is the longest frame of a tap: 64 KiB of IP behind Ethernet with a VLAN tag.
const frameMax = 14 + 4 + 65535

// Config holds the settings of an engine.
type Config struct {
	Guest net.Guest // gets the frames from the tap
	// File is the tap; the engine closes it.
	File *os.File
	// Offloads returns the offloads taken by the guest's driver. If nil, the tap sends complete
	// frames.
	Offloads func() (checksum, tso4, tso6 bool)
	// Warn receives the error that ended the tap, once. It may be nil.
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

	// room has a value after Writable. One is enough, because the reader tries again in any case.
	room   chan struct{}
	closed chan struct{}
	once   sync.Once // of Close
	wg     sync.WaitGroup

	// State of Transmit. Its calls come one at a time.
	header [net.HeaderSize]byte
	parts  [2][]byte
	write  func(fd uintptr) bool // made once: a frame costs no allocation
	failed error                 // of the last write
	set    bool                  // the driver has begun, and the tap knows its offloads
}

// Stats counts frames, without the ones refused by the device. Dropped counts guest frames not
// taken by the tap, because it is down or the kernel found the header wrong.
type Stats struct {
	FramesIn, BytesIn   uint64 // from the guest
	FramesOut, BytesOut uint64 // to the guest
	Dropped             uint64 // frames from the guest
}

type counters struct{ framesIn, bytesIn, framesOut, bytesOut, dropped atomic.Uint64 }

var _ net.Engine = (*Engine)(nil)

// New returns an engine. It owns the file from now on, also after an error.
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
		return true // a tap without room loses the frame: the guest's other queues must not wait
	}
	e.setOffloads()
	e.wg.Go(e.receive)
	return e, nil
}

// setOffloads makes the tap leave to the guest the work that its driver accepts. A tap without such
// support sends complete frames.
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
	if !e.set { // a booting guest had no driver when the engine was created
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

// receive passes frames from the tap to the guest. One frame without room waits here, and more wait
// in the tap's own queue; the operator sets its length (txqueuelen).
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

// Stats returns the counts so far.
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
