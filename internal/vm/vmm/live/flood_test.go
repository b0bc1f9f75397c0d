package live

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/virtio/vsock"
)

// usage holds this process's resources for its machines.
type usage struct {
	heap       uint64 // bytes
	goroutines int
	files      int
}

func measure() usage {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{m.HeapAlloc, runtime.NumGoroutine(), openFiles()}
}

func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// Limits of one machine's cost at any time, for any guest. Connections have a goroutine, a dial or
// a socket each.
const (
	boundHeap       = 48 << 20 // the backlog of all connections is limited to 32 MiB
	boundGoroutines = 3*vsock.MaxConns + 64
	boundFiles      = 2*vsock.MaxConns + 128
)

// check compares the current usage with u, measured before the machines began.
func (u usage) check(t *testing.T) {
	t.Helper()
	now := measure()
	if now.heap > u.heap+boundHeap || now.goroutines > u.goroutines+boundGoroutines || now.files > u.files+boundFiles {
		t.Errorf("usage grew from %+v to %+v", u, now)
	}
}

func refusing(context.Context, uint32) (net.Conn, error) { return nil, errors.New("nobody is there") }

// inTime fails if a request to a machine takes so long that it seems to hang.
func inTime(t *testing.T, what string, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(bootLimit):
		t.Fatalf("%s took longer than %v", what, bootLimit)
	}
}

// TestConsoleFlood makes a guest write to the console as fast as it can, for as long as it lives.
func TestConsoleFlood(t *testing.T) {
	const text = "all work and no play makes jack a dull boy\n"
	const bound, chunk = 8 << 10, 20 * len(text)
	s := newScript()
	s.data[bareBuffers] = []byte(strings.Repeat(text, 20))
	from := s.here()
	s.repeat(opOutString, uint32(chunk), boot.SerialPort, bareBuffers, 0)
	s.op(opAdd16, bareBeat, 1)
	s.loop(from, 0)
	v := newBareLogging(t, bound)
	v.run(s, nil)
	v.until("the log to turn over", func() bool { return v.word(bareBeat) > 2*bound/uint32(chunk) })
	for range 3 {
		inTime(t, "pause", v.Pause)
		v.checkLog(bound, text)
		inTime(t, "resume", func() error { _, err := v.Resume(); return err })
		v.waitBeat()
	}
	v.checkSound()
}

// checkLog expects the newest lines complete, in a log within its limit.
func (v *bareVM) checkLog(max int64, line string) {
	v.t.Helper()
	st, err := os.Stat(v.console)
	if err != nil {
		v.t.Fatal(err)
	}
	if st.Size() > max || st.Size() < max/4 {
		v.t.Errorf("console log has %d bytes, want at most %d and at least a quarter of it", st.Size(), max)
	}
	lines := strings.SplitAfter(v.text(), "\n")
	for _, l := range lines[1 : len(lines)-1] {
		if l != line {
			v.t.Fatalf("console log holds %q", l)
		}
	}
}

// packetAt writes a socket packet from the guest's port to the host's.
func (s *script) packetAt(at uint64, guestPort, hostPort uint32, op uint16, length, credit uint32) {
	s.op(opStore64, at, 3)
	s.op(opStore64, at+8, vsock.HostCID)
	s.op(opStore64, at+16, uint64(guestPort)|uint64(hostPort)<<32)
	s.op(opStore64, at+24, uint64(length)|1<<32|uint64(op)<<48)
	s.op(opStore64, at+32, uint64(credit)<<32)
	s.op(opStore32, at+40, 0)
}

const (
	packetRequest = 1
	packetData    = 5
	packetSize    = 44
)

// socketDevice starts the socket device with 64 receive buffers that are never returned.
func socketDevice(s *script) (rx, tx ring) {
	w := s.device(slotVsock)
	w.begin(featVersion1)
	rx, tx = w.ring(0, 128), w.ring(1, 128)
	event := w.ring(2, 8)
	for _, r := range []ring{rx, tx, event} {
		r.clear()
		r.tell()
	}
	for i := range 64 {
		rx.put(i, bareBuffers+0x400000+uint64(i)<<12, 4096, flagWrite, 0)
		s.op(opStore16, rx.avail+4+uint64(2*i), uint64(i))
	}
	s.op(opStore16, rx.avail+2, 64)
	start(rx)
	return rx, tx
}

// TestConnectionFlood makes a guest open connections without end and ignore all answers.
func TestConnectionFlood(t *testing.T) {
	const packet = bareBuffers
	s := newScript()
	_, tx := socketDevice(s)
	tx.put(0, packet, packetSize, 0, 0)
	s.packetAt(packet, 1, 1, packetRequest, 0, 4096)
	from := s.here()
	s.op(opAdd16, packet+16, 1) // another port of the guest
	s.op(opAdd16, tx.avail+2, 1)
	tx.kick()
	tx.awaitAll()
	s.op(opAdd16, bareBeat, 1)
	s.loop(from, 0)

	var dials, open atomic.Int32
	var peers sync.WaitGroup
	before := measure()
	v := bootBare(t, s, func(context.Context, uint32) (net.Conn, error) {
		dials.Add(1)
		a, b, err := vsock.Pair()
		if err != nil {
			return nil, err
		}
		open.Add(1)
		peers.Go(func() {
			io.Copy(io.Discard, b) // until the device closes its end
			b.Close()
			open.Add(-1)
		})
		return a, nil
	})
	v.until("the flood to fill the device", func() bool { return dials.Load() >= vsock.MaxConns })
	if n := open.Load(); n > vsock.MaxConns {
		t.Errorf("%d connections are open, want at most %d", n, vsock.MaxConns)
	}
	before.check(t)
	v.checkDeviceWorks(slotVsock)
	inTime(t, "pause", v.Pause)
	inTime(t, "resume", func() error { _, err := v.Resume(); return err })
	v.checkSound() // it saves with all connections open
	before.check(t)
	inTime(t, "close", v.Close)
	inTime(t, "the end of all connections", func() error { peers.Wait(); return nil })
}

// TestDataFlood makes a guest ignore credit and send on one connection to a host that does not
// read. The connection is cut, and the backlog is bounded.
func TestDataFlood(t *testing.T) {
	const request, data = bareBuffers, bareBuffers + 0x10000
	s := newScript()
	rx, tx := socketDevice(s)
	s.packetAt(request, 5, 6, packetRequest, 0, 4096)
	s.packetAt(data, 5, 6, packetData, 64<<10, 4096)
	tx.put(0, request, packetSize, 0, 0)
	tx.put(1, data, packetSize+64<<10, 0, 0)
	tx.offer(0, 1)
	tx.kick()
	rx.awaitUsed() // the host has accepted
	for i := range 128 {
		s.op(opStore16, tx.avail+4+uint64(2*i), 1)
	}
	from := s.here()
	s.op(opAdd16, tx.avail+2, 1)
	tx.kick()
	tx.awaitAll()
	s.op(opAdd16, bareBeat, 1)
	s.loop(from, 0)

	dialed := make(chan *net.UnixConn, 1)
	before := measure()
	v := bootBare(t, s, func(context.Context, uint32) (net.Conn, error) {
		a, b, err := vsock.Pair()
		if err == nil {
			dialed <- b
		}
		return a, err
	})
	v.until("4 MiB of data", func() bool { return v.word(bareBeat) > 64 })
	before.check(t)
	v.checkDeviceWorks(slotVsock)
	host := <-dialed
	defer host.Close()
	host.SetReadDeadline(time.Now().Add(bootLimit))
	n, err := io.Copy(io.Discard, host)
	if err != nil || n > 1<<20 {
		t.Errorf("the host read %d bytes and then %v, want an end within 1 MiB", n, err)
	}
	v.checkSound()
}

// checkDeviceWorks verifies that the flood was real: a device broken by the guest would have no
// work.
func (v *bareVM) checkDeviceWorks(slot int) {
	v.t.Helper()
	if v.devices.slots[slot].transport.NeedsReset() {
		v.t.Error("the guest broke the device, so there was no flood")
	}
}
