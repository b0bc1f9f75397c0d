package vsock

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

const (
	testCID     = 7
	guestBuf    = 64 << 10 // credit the guest gives
	rxBufSize   = 4096
	txSlotSize  = headerSize + 16<<10
	guestTxSlot = 32
)

// guest is a guest kernel's socket layer. It follows the protocol, and checks that the device does.
type guest struct {
	t   testing.TB
	d   *virtiotest.Driver
	cid uint64
	// former is the address before a restore. Linux's listeners, bound to any address, accept
	// pending packets to it.
	former uint64

	mu       sync.Mutex
	changed  *sync.Cond
	slots    []uint64          // free transmit buffers
	inFlight map[uint16]uint64 // transmit chain to its buffer
	rxBufs   map[uint16]uint64 // receive chain to its buffer
	events   map[uint16]uint64
	conns    map[key]*gconn
	backlog  map[uint32][]*gconn // listening port to connections not accepted
	nextPort uint32
	control  []header // packets waiting for a slot
	seen     []header // packets for no connection, for tests of the protocol
	resets   int      // transport resets
	stop     chan struct{}
	done     chan struct{}
	// keepEvents leaves event buffers with the guest after an event.
	keepEvents bool
}

// gconn is a socket in the guest.
type gconn struct {
	g *guest
	key
	open, reset        bool
	in                 bytes.Buffer
	peerDone           uint32
	sent, peerFwd      uint32
	peerBuf            uint32
	received, consumed uint32
	told               uint32
}

func startGuest(t testing.TB, dev *Device) *guest {
	t.Helper()
	return startGuestWith(t, dev, ^uint64(0))
}

func startGuestWith(t testing.TB, dev *Device, features uint64) *guest {
	t.Helper()
	d, err := virtiotest.NewAsync(t, dev, virtiotest.NewMemory(4<<20)).Start(features)
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{
		t: t, d: d, cid: testCID, former: testCID, nextPort: 5000,
		inFlight: map[uint16]uint64{}, rxBufs: map[uint16]uint64{}, events: map[uint16]uint64{},
		conns: map[key]*gconn{}, backlog: map[uint32][]*gconn{},
	}
	for range guestTxSlot {
		g.slots = append(g.slots, d.Mem.Alloc(txSlotSize))
	}
	for range queueSize {
		g.addReceive(d.Mem.Alloc(rxBufSize))
	}
	for range eventQueueSize {
		g.addEvent(d.Mem.Alloc(8))
	}
	d.Queues[0].Kick()
	d.Queues[2].Kick()
	g.run()
	return g
}

// run starts the guest.
func (g *guest) run() {
	g.changed = sync.NewCond(&g.mu)
	g.handleInterrupts()
	g.t.Cleanup(func() { g.halt() })
}

// handleInterrupts starts the interrupt handler.
func (g *guest) handleInterrupts() {
	g.stop, g.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(g.done)
		for {
			select {
			case <-g.stop:
				return
			case <-g.d.IRQ:
				g.interrupt()
			}
		}
	}()
}

// halt stops the guest, like its vCPUs before a save.
func (g *guest) halt() {
	select {
	case <-g.done:
	default:
		close(g.stop)
		<-g.done
	}
}

// restore returns the guest in a VM restored from this one's state and memory.
func (g *guest) restore(t testing.TB, dev *Device, state []byte) *guest {
	t.Helper()
	b := virtiotest.NewAsync(t, dev, g.d.Mem.Clone())
	if err := b.MMIO.Restore(state); err != nil {
		t.Fatal(err)
	}
	r := &guest{
		t: t, d: g.d.Move(b), cid: g.cid, former: g.cid, nextPort: g.nextPort, slots: append([]uint64(nil), g.slots...),
		inFlight: map[uint16]uint64{}, rxBufs: map[uint16]uint64{}, events: map[uint16]uint64{},
		conns: map[key]*gconn{}, backlog: map[uint32][]*gconn{}, keepEvents: g.keepEvents,
	}
	for _, m := range []struct{ from, to map[uint16]uint64 }{{g.inFlight, r.inFlight}, {g.rxBufs, r.rxBufs}, {g.events, r.events}} {
		for k, v := range m.from {
			m.to[k] = v
		}
	}
	for port := range g.backlog {
		r.backlog[port] = nil
	}
	for k, c := range g.conns {
		r.conns[k] = &gconn{g: r, key: k, open: c.open}
	}
	r.run()
	return r
}

func (g *guest) addReceive(at uint64) {
	head, ok := g.d.Queues[0].Add(virtiotest.Seg{GPA: at, Len: headerSize, Write: true},
		virtiotest.Seg{GPA: at + headerSize, Len: rxBufSize - headerSize, Write: true})
	if ok { // two descriptors each: half of them fit
		g.rxBufs[head] = at
	}
}

func (g *guest) addEvent(at uint64) {
	if head, ok := g.d.Queues[2].Add(virtiotest.Seg{GPA: at, Len: 8, Write: true}); ok {
		g.events[head] = at
	}
}

func (g *guest) interrupt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.changed.Broadcast()
	g.d.Ack()
	for {
		head, _, ok := g.d.Queues[1].Used()
		if !ok {
			break
		}
		g.slots = append(g.slots, g.inFlight[head])
		delete(g.inFlight, head)
	}
	for {
		head, n, ok := g.d.Queues[2].Used()
		if !ok {
			break
		}
		at := g.events[head]
		delete(g.events, head)
		g.event(n)
		if !g.keepEvents {
			g.addEvent(at)
		}
	}
	g.d.Queues[2].Kick()
	for {
		head, n, ok := g.d.Queues[0].Used()
		if !ok {
			break
		}
		at := g.rxBufs[head]
		delete(g.rxBufs, head)
		var b [headerSize]byte
		copy(b[:], g.d.Mem.Bytes(at, headerSize))
		h := decodeHeader(&b)
		if int(h.len)+headerSize != n || h.srcCID != HostCID || h.dstCID != g.cid && h.dstCID != g.former || h.kind != typeStream {
			g.t.Errorf("guest got %d bytes with header %+v", n, h)
		} else {
			g.packet(h, g.d.Mem.Bytes(at+headerSize, int(h.len)))
		}
		g.addReceive(at)
	}
	g.d.Queues[0].Kick()
	g.flush()
}

// event handles a transport reset: all connections are dropped, listeners stay.
func (g *guest) event(n int) {
	if n != eventSize {
		g.t.Errorf("event of %d bytes", n)
	}
	g.resets++
	for k, c := range g.conns {
		c.reset = true
		delete(g.conns, k)
	}
	b := g.d.Config(0, 8)
	g.cid = uint64(b[0]) | uint64(b[1])<<8
}

func (g *guest) packet(h header, data []byte) {
	k := key{guest: h.dstPort, host: h.srcPort}
	c := g.conns[k]
	if c == nil {
		c = g.incoming(k, h)
	}
	if c == nil {
		return
	}
	c.peerBuf, c.peerFwd = h.bufAlloc, h.fwdBack
	switch h.op {
	case opResponse:
		c.open = true
	case opReset:
		c.reset = true
		delete(g.conns, k)
	case opShutdown:
		c.peerDone |= h.flags
	case opData:
		if c.peerDone&shutSend != 0 {
			g.t.Error("data after the device said it sends no more")
		}
		c.received += uint32(len(data))
		if c.received-c.consumed > guestBuf {
			g.t.Errorf("device ignored the guest's credit: %d bytes", c.received-c.consumed)
		}
		c.in.Write(data)
	case opCreditRequest:
		g.control = append(g.control, c.header(opCreditUpdate))
	}
}

// incoming handles a packet for no known connection.
func (g *guest) incoming(k key, h header) *gconn {
	if _, listening := g.backlog[k.guest]; h.op == opRequest && listening {
		c := &gconn{g: g, key: k, open: true, peerBuf: h.bufAlloc, peerFwd: h.fwdBack}
		g.conns[k] = c
		g.backlog[k.guest] = append(g.backlog[k.guest], c)
		g.control = append(g.control, c.header(opResponse))
		return nil
	}
	g.seen = append(g.seen, h)
	if h.op != opReset {
		g.control = append(g.control, header{srcCID: g.cid, dstCID: HostCID, srcPort: k.guest, dstPort: k.host, kind: typeStream, op: opReset})
	}
	return nil
}

func (c *gconn) header(op uint16) header {
	c.told = c.consumed
	return header{
		srcCID: c.g.cid, dstCID: HostCID, srcPort: c.guest, dstPort: c.host, kind: typeStream, op: op,
		bufAlloc: guestBuf, fwdBack: c.consumed,
	}
}

// transmit sends a packet if there is a slot.
func (g *guest) transmit(h header, data []byte) bool {
	if len(g.slots) == 0 {
		return false
	}
	at := g.slots[len(g.slots)-1]
	var b [headerSize]byte
	h.encode(&b)
	copy(g.d.Mem.Bytes(at, headerSize), b[:])
	segs := []virtiotest.Seg{{GPA: at, Len: headerSize}}
	if len(data) > 0 {
		copy(g.d.Mem.Bytes(at+headerSize, len(data)), data)
		segs = append(segs, virtiotest.Seg{GPA: at + headerSize, Len: len(data)})
	}
	head, ok := g.d.Queues[1].Add(segs...)
	if !ok {
		return false
	}
	g.slots = g.slots[:len(g.slots)-1]
	g.inFlight[head] = at
	g.d.Queues[1].Kick()
	return true
}

func (g *guest) flush() {
	for len(g.control) > 0 && g.transmit(g.control[0], nil) {
		g.control = g.control[1:]
	}
}

// send queues a raw packet.
func (g *guest) send(h header, data []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.transmit(h, data) {
		g.changed.Wait()
	}
}

// until waits for a condition on the guest's state.
func (g *guest) until(ok func() bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !ok() {
		g.changed.Wait()
	}
}

func (g *guest) listen(port uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.backlog[port] = nil
}

func (g *guest) accept(port uint32) *gconn {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.backlog[port]) == 0 {
		g.changed.Wait()
	}
	c := g.backlog[port][0]
	g.backlog[port] = g.backlog[port][1:]
	return c
}

// connect opens a connection to a host port.
func (g *guest) connect(port uint32) (*gconn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nextPort++
	c := &gconn{g: g, key: key{guest: g.nextPort, host: port}}
	g.conns[c.key] = c
	g.control = append(g.control, c.header(opRequest))
	g.flush()
	for !c.open && !c.reset {
		g.changed.Wait()
	}
	if c.reset {
		return nil, io.ErrClosedPipe
	}
	return c, nil
}

// Read implements io.Reader.
func (c *gconn) Read(p []byte) (int, error) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	for c.in.Len() == 0 {
		switch {
		case c.peerDone&shutSend != 0:
			return 0, io.EOF
		case c.reset:
			return 0, io.ErrClosedPipe
		}
		c.g.changed.Wait()
	}
	n, _ := c.in.Read(p)
	c.consumed += uint32(n)
	if c.consumed-c.told >= guestBuf/2 {
		c.g.control = append(c.g.control, c.header(opCreditUpdate))
		c.g.flush()
	}
	return n, nil
}

// Write implements io.Writer.
func (c *gconn) Write(p []byte) (done int, err error) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	for done < len(p) {
		room := int(c.peerBuf) - int(c.sent-c.peerFwd)
		n := min(len(p)-done, room, txSlotSize-headerSize)
		switch {
		case c.reset || c.peerDone&shutReceive != 0:
			return done, io.ErrClosedPipe
		case n > 0:
			h := c.header(opData)
			h.len = uint32(n)
			if c.g.transmit(h, p[done:done+n]) {
				c.sent += uint32(n)
				done += n
				continue
			}
		}
		c.g.changed.Wait()
	}
	return done, nil
}

// say is header for tests, which do not hold the lock.
func (c *gconn) say(op uint16) header {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	return c.header(op)
}

// shutdown does a half or full close.
func (c *gconn) shutdown(flags uint32) {
	h := c.say(opShutdown)
	h.flags = flags
	c.g.send(h, nil)
}

// awaitReset waits until the device confirmed a close, or killed c.
func (c *gconn) awaitReset() { c.g.until(func() bool { return c.reset }) }
