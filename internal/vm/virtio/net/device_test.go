package net

import (
	"bytes"
	"encoding/binary"
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

var (
	update   = flag.Bool("update", false, "rewrite golden files")
	guestMAC = [6]byte{2, 0x66, 0x6f, 0x72, 0x6b, 2}
	peerMAC  = [6]byte{2, 0x66, 0x6f, 0x72, 0x6b, 1}
)

const (
	queueRx, queueTx, queueControl = 0, 1, 2
	testBuffer                     = 1536
)

// wire is an Engine that records its frames.
type wire struct {
	guest Guest
	// transmit, if set, is called for each frame.
	transmit func(h Header, frame []byte)

	mu       sync.Mutex // guards the fields below
	headers  []Header
	frames   [][]byte
	writable int
	closed   int
}

func (w *wire) Transmit(h Header, frame []byte) {
	if w.transmit != nil {
		w.transmit(h, frame)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.headers, w.frames = append(w.headers, h), append(w.frames, bytes.Clone(frame))
}

func (w *wire) Writable() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writable++
}

func (w *wire) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
}

func (w *wire) counts() (frames, writable, closed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.frames), w.writable, w.closed
}

// station is a device with its engine and a driver.
type station struct {
	*virtiotest.Driver
	t    testing.TB
	dev  *Device
	wire *wire
	made int // number of engines
	// buffers are the device's receive buffers, by chain.
	buffers map[uint16]virtiotest.Seg
}

func newStation(t testing.TB) *station {
	s := &station{t: t, wire: &wire{}, buffers: map[uint16]virtiotest.Seg{}}
	s.dev = New(Config{MAC: guestMAC, NewEngine: func(g Guest) Engine {
		s.made++
		s.wire.guest = g
		return s.wire
	}, Now: func() time.Time { return time.Unix(1000, 0) }})
	return s
}

// start returns a station with a running driver that has all features except without.
func start(t testing.TB, without uint64) *station {
	t.Helper()
	s := newStation(t)
	var err error
	if s.Driver, err = virtiotest.New(t, s.dev, virtiotest.NewMemory(8<<20)).Start(^without); err != nil {
		t.Fatal(err)
	}
	return s
}

// clone returns a station restored from this one's state. This one is paused meanwhile.
func (s *station) clone() *station {
	s.t.Helper()
	s.MMIO.Pause()
	defer s.MMIO.Resume()
	state, err := s.MMIO.Save()
	if err != nil {
		s.t.Fatal(err)
	}
	n := newStation(s.t)
	b := virtiotest.New(s.t, n.dev, s.Mem.Clone())
	if err := b.MMIO.Restore(state); err != nil {
		s.t.Fatal(err)
	}
	n.Driver = s.Driver.Move(b)
	for head, seg := range s.buffers {
		n.buffers[head] = seg
	}
	return n
}

// open opens the device.
func (s *station) open() {
	s.dev.Open()
	s.MMIO.Poke()
}

// send makes the guest send a frame, in pieces of these lengths and a rest.
func (s *station) send(h Header, frame []byte, pieces ...int) {
	s.t.Helper()
	b := make([]byte, HeaderSize, HeaderSize+len(frame))
	h.Encode(b)
	b = append(b, frame...)
	at := s.Mem.Put(b)
	var segs []virtiotest.Seg
	for _, n := range append(pieces, len(b)) {
		if n = min(n, len(b)); n > 0 {
			segs = append(segs, virtiotest.Seg{GPA: at, Len: n})
		}
		at, b = at+uint64(n), b[n:]
	}
	if _, ok := s.Queues[queueTx].Add(segs...); !ok {
		s.t.Fatal("no room to send")
	}
	s.Queues[queueTx].Kick()
}

// offer gives the device receive buffers of a length.
func (s *station) offer(count, length int) {
	s.t.Helper()
	for range count {
		seg := virtiotest.Seg{GPA: s.Mem.Alloc(length), Len: length, Write: true}
		head, ok := s.Queues[queueRx].Add(seg)
		if !ok {
			s.t.Fatal("no room for a receive buffer")
		}
		s.buffers[head] = seg
	}
	s.Queues[queueRx].Kick()
}

// got takes the guest's next received frame.
func (s *station) got() (h Header, frame []byte, ok bool) {
	s.t.Helper()
	for i, want := 0, 1; i < want; i++ {
		head, n, ok := s.Queues[queueRx].Used()
		if !ok {
			if i > 0 {
				s.t.Fatalf("%d buffers of %d", i, want)
			}
			return h, nil, false
		}
		seg := s.buffers[head]
		if n > seg.Len {
			s.t.Fatalf("%d bytes in a buffer of %d", n, seg.Len)
		}
		b := s.Mem.Bytes(seg.GPA, n)
		if i == 0 {
			h = DecodeHeader(b)
			b, want = b[HeaderSize:], int(h.Buffers)
		}
		frame = append(frame, b...)
	}
	return h, frame, true
}

// mustGet checks the guest's next received frame.
func (s *station) mustGet(want []byte) Header {
	s.t.Helper()
	h, frame, ok := s.got()
	if !ok || !bytes.Equal(frame, want) {
		s.t.Fatalf("got %v, %d bytes % x, want %d bytes", ok, len(frame), frame[:min(len(frame), 60)], len(want))
	}
	return h
}

// plain returns a frame of n bytes that belongs to no flow.
func plain(n int) []byte {
	b := make([]byte, max(n, etherSize))
	for i := range b {
		b[i] = byte(i * 7)
	}
	copy(b, peerMAC[:])
	copy(b[6:], guestMAC[:])
	binary.BigEndian.PutUint16(b[12:], 0x88b5)
	return b[:n]
}

func TestConfiguration(t *testing.T) {
	s := newStation(t)
	b := virtiotest.New(t, s.dev, virtiotest.NewMemory(1<<16))
	want := append(append([]byte{}, guestMAC[:]...), 1, 0, 1, 0, 0xdc, 5)
	if got := b.Config(0, 12); !bytes.Equal(got, want) {
		t.Errorf("configuration % x", got)
	}
	if got := b.Config(10, 8); !bytes.Equal(got, []byte{0xdc, 5, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("at its end % x", got)
	}
	// CSUM GUEST_CSUM MTU MAC GUEST_TSO4/6 HOST_TSO4/6 HOST_ECN MRG_RXBUF STATUS CTRL_VQ CTRL_MAC_ADDR
	if got := b.Offered() & 0xfffffff; got != 0x83b9ab {
		t.Errorf("features %#x", got)
	}
}

func TestNothingIsReadBeforeItIsOpen(t *testing.T) {
	s := start(t, 0)
	s.send(Header{}, plain(60))
	if _, _, ok := s.Queues[queueTx].Used(); ok || s.made != 0 {
		t.Fatalf("read: %v, %d engines", ok, s.made)
	}
	c := s.clone()
	c.MMIO.Resume()
	s.open()
	s.open()
	if _, _, ok := s.Queues[queueTx].Used(); !ok || s.made != 1 || !bytes.Equal(s.wire.frames[0], plain(60)) {
		t.Fatalf("read: %v, %d engines, %d frames", ok, s.made, len(s.wire.frames))
	}
	if _, _, ok := c.Queues[queueTx].Used(); ok {
		t.Fatal("the clone's was read")
	}
	c.open()
	if n, _, _ := c.wire.counts(); n != 1 {
		t.Errorf("%d frames of the clone", n)
	}
	d := c.clone() // of an open one
	d.MMIO.Resume()
	d.send(Header{}, plain(70))
	if n, _, _ := d.wire.counts(); n != 0 {
		t.Error("a clone of an open one is open")
	}
}

func TestFramesGoOutAsTheyAre(t *testing.T) {
	s := start(t, 0)
	s.open()
	tso := Header{Flags: NeedsChecksum, GSOType: GSOTCPv6 | GSOECN, HeaderLen: 74, GSOSize: 1428, ChecksumStart: 54, ChecksumOffset: 16}
	frames := [][]byte{plain(etherSize), plain(60), plain(1514), plain(maxFrame)}
	s.send(Header{}, frames[0], 0, 5)
	s.send(Header{Buffers: 99}, frames[1], HeaderSize)
	s.send(Header{}, frames[2], HeaderSize, 14, 1)
	s.send(tso, frames[3], 100, 4096, 4096)
	for i, want := range []Header{{}, {}, {}, tso} {
		if s.wire.headers[i] != want || !bytes.Equal(s.wire.frames[i], frames[i]) {
			t.Errorf("frame %d: %+v, %d bytes", i, s.wire.headers[i], len(s.wire.frames[i]))
		}
	}
}

// A frame that does not match its header is lost, and the device continues.
func TestFramesThatDoNotFit(t *testing.T) {
	whole := Header{Flags: NeedsChecksum, GSOType: GSOTCPv4, HeaderLen: 54, GSOSize: 1460, ChecksumStart: 34, ChecksumOffset: 16}
	for name, c := range map[string]struct {
		without uint64
		change  func(h *Header)
		len     int
	}{
		"too short":                   {0, func(*Header) {}, etherSize - 1},
		"too long":                    {0, func(*Header) {}, maxFrame + 1},
		"checksum behind its end":     {0, func(h *Header) { h.ChecksumStart = 99 }, 114},
		"checksum far behind its end": {0, func(h *Header) { h.ChecksumStart, h.ChecksumOffset = 0xffff, 0xffff }, 114},
		"no checksum but segments":    {0, func(h *Header) { h.Flags = 0 }, 114},
		"no size of segments":         {0, func(h *Header) { h.GSOSize = 0 }, 114},
		"headers longer than it":      {0, func(h *Header) { h.HeaderLen = 115 }, 114},
		"unknown segments":            {0, func(h *Header) { h.GSOType = 3 }, 114},
		"marks without segments":      {0, func(h *Header) { h.GSOType = GSOECN }, 114},
		"segments not negotiated":     {featureHostTSO4, func(*Header) {}, 114},
		"marks not negotiated":        {featureHostECN, func(h *Header) { h.GSOType |= GSOECN }, 114},
		"checksum not negotiated":     {featureCSUM, func(h *Header) { h.GSOType = 0 }, 114},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, c.without)
			s.open()
			h := whole
			c.change(&h)
			s.send(h, plain(c.len))
			s.send(Header{}, plain(60))
			if n, _, _ := s.wire.counts(); n != 1 || s.MMIO.NeedsReset() {
				t.Errorf("%d frames, broken %v: %v", n, s.MMIO.NeedsReset(), s.Fault())
			}
		})
	}
}

func TestViolationsBreakTheDevice(t *testing.T) {
	for name, do := range map[string]func(s *station){
		"no whole header": func(s *station) {
			s.Queues[queueTx].Add(virtiotest.Seg{GPA: s.Mem.Alloc(16), Len: HeaderSize - 1})
			s.Queues[queueTx].Kick()
		},
		"writable buffer to send": func(s *station) {
			s.Queues[queueTx].Add(virtiotest.Seg{GPA: s.Mem.Alloc(64), Len: 64, Write: true})
			s.Queues[queueTx].Kick()
		},
		"readable buffer to receive": func(s *station) {
			s.Queues[queueRx].Add(virtiotest.Seg{GPA: s.Mem.Alloc(2048), Len: 2048})
			s.dev.Receive(Header{}, plain(60))
		},
		"no room for a header": func(s *station) {
			s.offer(1, HeaderSize-1)
			s.dev.Receive(Header{}, plain(60))
		},
		"a command without an answer": func(s *station) {
			s.Queues[queueControl].Add(virtiotest.Seg{GPA: s.Mem.Alloc(16), Len: 8})
			s.Queues[queueControl].Kick()
		},
		"a command without a class": func(s *station) {
			at := s.Mem.Alloc(16)
			s.Queues[queueControl].Add(virtiotest.Seg{GPA: at, Len: 1}, virtiotest.Seg{GPA: at + 8, Len: 1, Write: true})
			s.Queues[queueControl].Kick()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, 0)
			s.open()
			do(s)
			if !s.MMIO.NeedsReset() {
				t.Fatal("the device goes on")
			}
			if s.dev.Receive(Header{}, plain(60)) {
				t.Error("a broken device takes frames")
			}
		})
	}
}

func TestFramesComeInAsTheyAre(t *testing.T) {
	s := start(t, 0)
	s.offer(100, testBuffer)
	tso := Header{Flags: NeedsChecksum, GSOType: GSOTCPv4, HeaderLen: 54, GSOSize: 1460, ChecksumStart: 34, ChecksumOffset: 16}
	for _, n := range []int{etherSize, 60, 1514, testBuffer - HeaderSize, testBuffer - HeaderSize + 1, maxFrame} {
		if !s.dev.Receive(tso, plain(n)) {
			t.Fatalf("%d bytes refused", n)
		}
		h := s.mustGet(plain(n))
		want := tso
		want.Buffers = uint16((n + HeaderSize + testBuffer - 1) / testBuffer)
		if h != want {
			t.Errorf("%d bytes: header %+v, want %+v", n, h, want)
		}
	}
	for _, n := range []int{0, etherSize - 1, maxFrame + 1} {
		if _, _, ok := s.got(); !s.dev.Receive(Header{}, make([]byte, n)) || ok {
			t.Errorf("%d bytes are not dropped", n)
		}
	}
}

// A refused frame is requested again when there are more buffers, and only then.
func TestAGuestWithoutRoom(t *testing.T) {
	for name, without := range map[string]uint64{"by index": 0, "by flag": virtio.FeatureEventIdx} { // asks for kicks
		t.Run(name, func(t *testing.T) { testWithoutRoom(t, start(t, without)) })
	}
}

func testWithoutRoom(t *testing.T, s *station) {
	s.open()
	s.send(Header{}, plain(60)) // makes the engine
	writable := func(want int) {
		t.Helper()
		if _, n, _ := s.wire.counts(); n != want {
			t.Fatalf("writable %d times, want %d", n, want)
		}
	}
	s.offer(1, testBuffer)
	writable(0)
	if s.dev.Receive(Header{}, plain(4000)) {
		t.Fatal("taken into one buffer")
	}
	s.Queues[queueRx].ForceKick()
	writable(0)
	s.offer(1, testBuffer)
	writable(1)
	if s.dev.Receive(Header{}, plain(4000)) {
		t.Fatal("taken into two buffers")
	}
	s.offer(1, testBuffer)
	writable(2)
	s.offer(1, testBuffer)
	writable(2)
	if !s.dev.Receive(Header{}, plain(4000)) {
		t.Fatal("not taken into four buffers")
	}
	s.mustGet(plain(4000))
	if !s.dev.Receive(Header{}, plain(60)) || s.dev.Receive(Header{}, plain(60)) {
		t.Fatal("there was room for one")
	}
	s.offer(1, testBuffer)
	writable(3)
}

// A frame too large for the whole ring would be refused for ever.
func TestFramesThatTheRingNeverTakesAreLost(t *testing.T) {
	s := start(t, 0)
	s.offer(queueSize, 64)
	if !s.dev.Receive(Header{}, plain(maxFrame)) {
		t.Error("refused")
	}
	if !s.dev.Receive(Header{}, plain(60)) {
		t.Error("refused after it")
	}
	s.mustGet(plain(60))
}

func TestADriverThatDoesNotMergeBuffers(t *testing.T) {
	s := start(t, featureMergeRxBuf)
	s.offer(1, testBuffer)
	if !s.dev.Receive(Header{}, plain(4000)) {
		t.Error("refused, for ever")
	}
	if !s.dev.Receive(Header{}, plain(600)) {
		t.Error("refused")
	}
	s.mustGet(plain(600))
}

func TestADriverWithoutOffloads(t *testing.T) {
	s := start(t, featureGuestCSUM|featureGuestTSO4|featureGuestTSO6)
	s.offer(8, testBuffer)
	frame := plain(101)
	if !s.dev.Receive(Header{GSOType: GSOTCPv4, GSOSize: 1460}, frame) || !s.dev.Receive(Header{GSOType: GSOTCPv6}, frame) ||
		!s.dev.Receive(Header{GSOType: 77}, frame) {
		t.Error("refused")
	}
	if !s.dev.Receive(Header{Flags: NeedsChecksum, ChecksumStart: 34, ChecksumOffset: 16}, frame) {
		t.Error("refused")
	}
	if !bytes.Equal(frame, plain(101)) {
		t.Error("the engine's frame was changed")
	}
	h, got, ok := s.got()
	if !ok || h.Flags != 0 || len(got) != len(frame) {
		t.Fatalf("%v, %+v, %d bytes", ok, h, len(got))
	}
	binary.BigEndian.PutUint16(frame[50:], checksum(frame[34:]))
	if !bytes.Equal(got, frame) {
		t.Errorf("got % x", got)
	}
	if c, v4, v6 := s.dev.Offloads(); c || v4 || v6 {
		t.Error("it tells the engine otherwise")
	}
}

// command executes a control command and returns its answer.
func (s *station) command(b ...byte) byte {
	s.t.Helper()
	got, err := s.Queues[queueControl].Exchange(b, 1)
	if err != nil || len(got) != 1 {
		s.t.Fatal(got, err)
	}
	return got[0]
}

func TestTheGuestsAddressIsSetLive(t *testing.T) {
	s := start(t, 0) // not open: a clone's agent sets it before that
	next := []byte{6, 1, 2, 3, 4, 5}
	if got := s.command(append([]byte{1, 1}, next...)...); got != controlOK {
		t.Fatalf("answer %d", got)
	}
	if got := s.Config(0, 6); !bytes.Equal(got, next) {
		t.Errorf("address % x", got)
	}
	for name, b := range map[string][]byte{
		"multicast": {1, 1, 1, 2, 3, 4, 5, 6}, "none": {1, 1, 0, 0, 0, 0, 0, 0}, "too short": {1, 1, 2, 2, 2, 2, 2},
		"too long": {1, 1, 2, 2, 2, 2, 2, 2, 2}, "a table": {1, 0, 2, 2, 2, 2, 2, 2}, "promiscuous": {0, 0, 1}, "unknown": {9, 9},
	} {
		if got := s.command(b...); got != controlError {
			t.Errorf("%s: answer %d", name, got)
		}
	}
	c := s.clone()
	if got := c.Config(0, 6); !bytes.Equal(got, next) {
		t.Errorf("address of a clone % x", got)
	}
	if n := len(s.wire.frames); n != 0 {
		t.Errorf("%d frames", n)
	}
}

func TestPauseStopsBothWays(t *testing.T) {
	s := start(t, 0)
	s.open()
	s.offer(4, testBuffer)
	s.send(Header{}, plain(60))
	s.MMIO.Pause()
	s.send(Header{}, plain(70))
	if n, _, _ := s.wire.counts(); n != 1 {
		t.Errorf("%d frames", n)
	}
	if s.dev.Receive(Header{}, plain(60)) {
		t.Error("received while paused")
	}
	s.MMIO.Resume()
	if n, w, _ := s.wire.counts(); n != 2 || w != 1 {
		t.Errorf("%d frames, writable %d times", n, w)
	}
	if !s.dev.Receive(Header{}, plain(60)) {
		t.Error("refused after the pause")
	}
}

// The engine answers from within Transmit during receives, pauses and resets, without a deadlock.
func TestResetInMidTransfer(t *testing.T) {
	s := newStation(t)
	s.wire.transmit = func(h Header, frame []byte) { s.wire.guest.Receive(h, frame) }
	b := virtiotest.NewAsync(t, s.dev, virtiotest.NewMemory(64<<20))
	s.dev.Open()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.dev.Receive(Header{}, plain(3000))
				}
			}
		})
	}
	for i := range 30 {
		var err error
		if s.Driver, err = b.Start(^uint64(0)); err != nil {
			t.Fatal(err)
		}
		s.buffers = map[uint16]virtiotest.Seg{}
		s.offer(32, testBuffer)
		for range 100 {
			s.send(Header{}, plain(1000))
		}
		if i%2 == 0 {
			b.MMIO.Pause()
			b.MMIO.Resume()
		}
	}
	close(stop)
	wg.Wait()
	if err := s.Fault(); err != nil {
		t.Error(err)
	}
	if err := b.MMIO.Close(); err != nil {
		t.Error(err)
	}
	if _, _, closed := s.wire.counts(); closed > 1 || closed != s.made {
		t.Errorf("%d engines closed of %d", closed, s.made)
	}
	if s.dev.Receive(Header{}, plain(60)) {
		t.Error("received after it was closed")
	}
}

// A new driver gets the frames for which the last one had no room.
func TestAResetMakesRoom(t *testing.T) {
	s := start(t, 0)
	s.open()
	s.send(Header{}, plain(60))
	if s.dev.Receive(Header{}, plain(60)) {
		t.Fatal("taken without a buffer")
	}
	d, err := s.Bench.Start(^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	s.Driver = d
	if s.dev.Receive(Header{}, plain(60)) {
		t.Fatal("taken without a buffer")
	}
	s.offer(1, testBuffer)
	if _, n, _ := s.wire.counts(); n != 1 {
		t.Errorf("writable %d times", n)
	}
}

// tcp returns a segment between the guest and a host, without checksums.
func tcp(up bool, flags uint8, seq, ack uint32, n int) []byte {
	b := make([]byte, 54+n)
	be := binary.BigEndian
	copy(b, guestMAC[:])
	copy(b[6:], peerMAC[:])
	be.PutUint16(b[12:], 0x800)
	b[14], b[22], b[23] = 0x45, 64, 6
	be.PutUint16(b[16:], uint16(40+n))
	copy(b[26:], []byte{198, 51, 100, 7})
	copy(b[30:], []byte{192, 0, 0, 2})
	be.PutUint16(b[34:], 443)
	be.PutUint16(b[36:], 1000)
	if up {
		copy(b, peerMAC[:])
		copy(b[6:], guestMAC[:])
		copy(b[26:], []byte{192, 0, 0, 2, 198, 51, 100, 7, 3, 232, 1, 187})
	}
	be.PutUint32(b[38:], seq)
	be.PutUint32(b[42:], ack)
	b[46], b[47] = 5<<4, flags
	return b
}

const flagSYN, flagRST, flagACK = 2, 4, 16

// connect makes the guest of an open station connect and receive some bytes.
func (s *station) connect() {
	s.send(Header{}, tcp(true, flagSYN, 100, 0, 0))
	s.dev.Receive(Header{}, tcp(false, flagSYN|flagACK, 9000, 101, 0))
	s.send(Header{}, tcp(true, flagACK, 101, 9001, 0))
	s.dev.Receive(Header{}, tcp(false, flagACK, 9001, 101, 50))
}

// mustReset checks that the guest's next frame is a reset.
func (s *station) mustReset(seq uint32) {
	s.t.Helper()
	h, frame, ok := s.got()
	if !ok || h != (Header{Buffers: 1}) || len(frame) != 54 || frame[47] != flagRST|flagACK || [6]byte(frame) != guestMAC {
		s.t.Fatalf("got %v, %+v % x", ok, h, frame)
	}
	if got := binary.BigEndian.Uint32(frame[38:]); got != seq {
		s.t.Errorf("reset at %d, want %d", got, seq)
	}
}

func TestACloneResetsItsConnectionsBeforeAnythingElse(t *testing.T) {
	s := start(t, 0)
	s.open()
	s.offer(8, testBuffer)
	s.connect()
	c := s.clone()
	for _, x := range []*station{s, c} { // the source got these before
		x.mustGet(tcp(false, flagSYN|flagACK, 9000, 101, 0))
		x.mustGet(tcp(false, flagACK, 9001, 101, 50))
	}
	if _, _, ok := c.got(); ok {
		t.Fatal("it gets something before it runs")
	}
	c.MMIO.Resume()
	c.mustReset(9051)
	c.mustReset(9001)
	if !c.dev.Receive(Header{}, plain(60)) {
		t.Error("refused")
	}
	c.mustGet(plain(60))
	if _, _, ok := s.got(); ok {
		t.Error("the source gets something")
	}
	if c.made != 0 {
		t.Error("an engine was made for it")
	}
}

func TestResetsWaitForRoom(t *testing.T) {
	s := start(t, 0)
	s.open()
	s.offer(2, testBuffer)
	s.connect()
	c := s.clone()
	c.got()
	c.got()
	c.MMIO.Resume()
	if c.dev.Receive(Header{}, plain(60)) {
		t.Fatal("something else overtakes a reset")
	}
	c.offer(1, testBuffer)
	c.mustReset(9051)
	grandchild := c.clone()
	grandchild.MMIO.Resume()
	grandchild.offer(1, testBuffer)
	grandchild.mustReset(9051)
	c.offer(2, testBuffer)
	c.mustReset(9001)
	if !c.dev.Receive(Header{}, plain(60)) {
		t.Fatal("refused")
	}
	c.mustGet(plain(60))
}

// udp returns a datagram of the guest.
func udp() []byte {
	b := tcp(true, 0, 0, 0, 10)
	b[23] = 17
	binary.BigEndian.PutUint16(b[38:], 30)
	return b
}

func TestACloneKeepsOffItsSourcesSessions(t *testing.T) {
	s := start(t, 0)
	s.open()
	s.offer(4, testBuffer)
	s.send(Header{}, udp())
	c := s.clone()
	c.MMIO.Resume()
	c.open()
	c.send(Header{}, udp())
	if _, frame, ok := c.got(); !ok || frame[23] != 1 || frame[34] != 3 || frame[35] != 3 {
		t.Errorf("answer %v % x", ok, frame)
	}
	if n, _, _ := c.wire.counts(); n != 0 || c.made != 0 {
		t.Errorf("%d frames, %d engines", n, c.made)
	}
	for range 10 { // for any number of datagrams: without room the answers are lost
		c.send(Header{}, udp())
	}
	if n, _, _ := s.wire.counts(); n != 1 {
		t.Errorf("%d frames of the source", n)
	}
}

// The frames that the source was about to send at the save are in the clone as well.
func TestACloneDoesNotSendItsSourcesDatagrams(t *testing.T) {
	s := start(t, 0) // not open: they wait
	s.offer(4, testBuffer)
	syn := tcp(true, flagSYN, 100, 0, 0)
	s.send(Header{}, udp())
	s.send(Header{}, plain(5)) // lost in both
	s.send(Header{}, syn)
	c := s.clone()
	c.MMIO.Resume()
	own := udp()
	own[35]++ // another port
	c.send(Header{}, own)
	s.open()
	c.open()
	if n, _, _ := s.wire.counts(); n != 2 {
		t.Errorf("%d frames of the source", n)
	}
	if n, _, _ := c.wire.counts(); n != 2 || !bytes.Equal(c.wire.frames[0], syn) || !bytes.Equal(c.wire.frames[1], own) {
		t.Errorf("%d frames of the clone: % x", n, c.wire.frames)
	}
	if _, frame, ok := c.got(); !ok || frame[23] != 1 {
		t.Errorf("answer %v % x", ok, frame)
	}
}

func TestADeviceWithoutAnEngineReadsNothing(t *testing.T) {
	s := newStation(t)
	s.dev = New(Config{MAC: guestMAC})
	var err error
	if s.Driver, err = virtiotest.New(t, s.dev, virtiotest.NewMemory(1<<20)).Start(^uint64(0)); err != nil {
		t.Fatal(err)
	}
	s.open()
	s.send(Header{}, plain(60))
	if _, _, ok := s.Queues[queueTx].Used(); ok {
		t.Error("read")
	}
}

func TestTransferDoesNotAllocate(t *testing.T) {
	s := start(t, 0)
	s.offer(200, testBuffer)
	frame := tcp(false, flagACK, 1, 1, 1000)
	if n := testing.AllocsPerRun(50, func() { s.dev.Receive(Header{}, frame) }); n != 0 {
		t.Errorf("%v allocations for a frame to the guest", n)
	}
}

// The encoding of released versions must not change.
func TestGoldenState(t *testing.T) {
	const path = "testdata/net-v1.state"
	s := start(t, 0)
	s.open()
	s.offer(8, testBuffer)
	s.connect()
	s.send(Header{}, udp())
	got := s.dev.SaveState()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("state is\n% x, golden file has\n% x", got, want)
	}
	back := newStation(t).dev
	if err := back.RestoreState(want); err != nil || !bytes.Equal(back.SaveState(), want) {
		t.Errorf("restored as\n% x, %v", back.SaveState(), err)
	}
}

func TestBadStatesAreRefused(t *testing.T) {
	good := newStation(t).dev.SaveState()
	for name, b := range map[string][]byte{
		"nothing": nil, "another version": append([]byte{2}, good[1:]...), "cut short": good[:len(good)-1],
		"too long": append(bytes.Clone(good), 0), "a multicast address": append([]byte{1, 0, 1}, good[3:]...),
		"no address": append([]byte{1, 0}, make([]byte, len(good)-2)...), "too many flows": append(bytes.Clone(good[:14]), 1, 4),
	} {
		if err := newStation(t).dev.RestoreState(b); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
