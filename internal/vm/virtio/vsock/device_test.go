package vsock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

// ports is a Dialer with host ports served by the test.
type ports map[uint32]func(Conn)

func (p ports) DialHost(_ context.Context, port uint32) (Conn, error) {
	serve, ok := p[port]
	if !ok {
		return nil, errors.New("connection refused")
	}
	a, b, err := Pair()
	if err != nil {
		return nil, err
	}
	go serve(b)
	return a, nil
}

func newDevice(dialer Dialer) *Device { return New(Config{CID: testCID, Dialer: dialer}) }

// serve serves the device on a Unix listener and returns its path.
func serve(t testing.TB, dev *Device) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "v.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- dev.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return path
}

// dialRaw sends line and returns the first line of the answer.
func dialRaw(t testing.TB, path, line string) (*net.UnixConn, string) {
	t.Helper()
	sock, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sock.Close() })
	if _, err := io.WriteString(sock, line); err != nil {
		t.Logf("write %q: %v", line, err)
	}
	var answer []byte
	for b := make([]byte, 1); ; {
		if _, err := sock.Read(b); err != nil || b[0] == '\n' {
			return sock.(*net.UnixConn), string(answer)
		}
		answer = append(answer, b[0])
	}
}

func dial(t testing.TB, path string, port uint32) *net.UnixConn {
	t.Helper()
	sock, answer := dialRaw(t, path, fmt.Sprintf("CONNECT %d\n", port))
	var host uint32
	if _, err := fmt.Sscanf(answer, "OK %d", &host); err != nil || host < firstPort {
		t.Fatalf("answer %q", answer)
	}
	return sock
}

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	var s [32]byte
	binary.LittleEndian.PutUint64(s[:], seed)
	_, _ = rand.NewChaCha8(s).Read(b)
	return b
}

// writeChunks writes p in random pieces.
func writeChunks(w io.Writer, seed uint64, p []byte) error {
	r := rand.New(rand.NewPCG(seed, 3))
	for len(p) > 0 {
		n := min(len(p), 1+r.IntN(1<<(1+r.IntN(16))))
		if _, err := w.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func TestConfiguration(t *testing.T) {
	b := virtiotest.New(t, newDevice(nil), virtiotest.NewMemory(1<<16))
	if got := b.Config(0, 8); got[0] != testCID {
		t.Errorf("cid % x", got)
	}
	if got := b.Config(6, 8); !bytes.Equal(got, make([]byte, 8)) {
		t.Errorf("beyond the configuration: % x", got)
	}
	if got := b.Offered() & 0xffffff; got != featureStream {
		t.Errorf("features %#x", got)
	}
}

// exchange sends different data in both directions concurrently. Each side closes its half when it
// has sent all.
func exchange(t *testing.T, seed uint64, host *net.UnixConn, inGuest *gconn) {
	t.Helper()
	up, down := noise(seed, 100_000+int(seed)*7919%300_000), noise(seed+1e6, 100_000+int(seed)*104729%300_000)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if err := writeChunks(host, seed, up); err != nil {
			t.Errorf("host write: %v", err)
		}
		if err := host.CloseWrite(); err != nil {
			t.Errorf("host half-close: %v", err)
		}
	})
	wg.Go(func() {
		if err := writeChunks(inGuest, seed, down); err != nil {
			t.Errorf("guest write: %v", err)
		}
		inGuest.shutdown(shutSend)
	})
	wg.Go(func() {
		if got, err := io.ReadAll(inGuest); err != nil || sha256.Sum256(got) != sha256.Sum256(up) {
			t.Errorf("guest read %d bytes of %d: %v", len(got), len(up), err)
		}
	})
	if got, err := io.ReadAll(host); err != nil || sha256.Sum256(got) != sha256.Sum256(down) {
		t.Errorf("host read %d bytes of %d: %v", len(got), len(down), err)
	}
}

func TestManyConnectionsFromTheHost(t *testing.T) {
	for name, features := range map[string]uint64{"all ring features": ^uint64(0), "none": 0} {
		t.Run(name, func(t *testing.T) { manyFromTheHost(t, features) })
	}
}

func manyFromTheHost(t *testing.T, features uint64) {
	dev := newDevice(nil)
	g := startGuestWith(t, dev, features)
	path := serve(t, dev)
	var wg sync.WaitGroup
	for i := range 24 {
		port := uint32(1000 + i)
		g.listen(port)
		wg.Go(func() {
			host := dial(t, path, port)
			c := g.accept(port)
			exchange(t, uint64(i), host, c)
			c.shutdown(shutBoth)
			c.awaitReset()
		})
	}
	wg.Wait()
	expectIdle(t, dev, g)
}

// dialGuest connects to a guest's port, and returns the host's end and the guest's.
func dialGuest(t testing.TB, dev *Device, g *guest, port uint32) (*net.UnixConn, *gconn) {
	t.Helper()
	path := serve(t, dev)
	g.listen(port)
	return dial(t, path, port), g.accept(port)
}

func TestManyConnectionsFromTheGuest(t *testing.T) {
	socks := make(chan Conn, 1)
	dev := newDevice(ports{1023: func(c Conn) { socks <- c }})
	g := startGuest(t, dev)
	var wg sync.WaitGroup
	for i := range 16 {
		c, err := g.connect(1023)
		if err != nil {
			t.Fatal(err)
		}
		host := (<-socks).(*net.UnixConn)
		wg.Go(func() {
			exchange(t, uint64(100+i), host, c)
			c.shutdown(shutBoth)
			c.awaitReset()
			_ = host.Close()
		})
	}
	wg.Wait()
	expectIdle(t, dev, g)
}

// expectIdle checks that all resources of connections are freed.
func expectIdle(t *testing.T, dev *Device, g *guest) {
	t.Helper()
	if err := g.d.Fault(); err != nil {
		t.Errorf("device fault: %v", err)
	}
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if len(dev.conns) != 0 || dev.backlog != 0 || len(dev.out.resets) != 0 {
		t.Errorf("%d connections, %d bytes, %d resets are left", len(dev.conns), dev.backlog, len(dev.out.resets))
	}
}

func TestGuestRefuses(t *testing.T) {
	dev := newDevice(nil)
	startGuest(t, dev)
	if _, answer := dialRaw(t, serve(t, dev), "CONNECT 99\n"); answer != "" {
		t.Errorf("answer %q, want a closed connection", answer)
	}
}

func TestHostRefuses(t *testing.T) {
	for name, dialer := range map[string]Dialer{"no such port": ports{}, "no dialer": nil} {
		g := startGuest(t, newDevice(dialer))
		if _, err := g.connect(55); err == nil {
			t.Errorf("%s: connected", name)
		}
	}
}

func TestHandshake(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	path := serve(t, dev)
	for _, line := range []string{"\n", "HELLO\n", "CONNECT\n", "CONNECT x\n", "CONNECT 4294967296\n", "CONNECT -1\n", string(make([]byte, 100)), "CONNECT 1 2\n"} {
		if _, answer := dialRaw(t, path, line); answer != "" {
			t.Errorf("%q: answer %q", line, answer)
		}
	}
	g.listen(80)
	// Bytes after the line belong to the guest, for any split into pieces.
	sock, answer := dialRaw(t, path, "CONNECT 80\nGET /")
	if answer == "" {
		t.Fatal("refused")
	}
	if err := sock.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(g.accept(80)); err != nil || string(got) != "GET /" {
		t.Errorf("guest got %q, %v", got, err)
	}
}

func TestParseConnect(t *testing.T) {
	if p, err := parseConnect("CONNECT 1024\r"); p != 1024 || err != nil {
		t.Errorf("%d, %v", p, err)
	}
}

func TestNotReadyIsRefusedAtOnce(t *testing.T) {
	dev := newDevice(nil)
	defer dev.Close() //nolint:errcheck // returns nil
	if _, answer := dialRaw(t, serve(t, dev), "CONNECT 1\n"); answer != "" {
		t.Errorf("answer %q", answer)
	}
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // test
	defer b.Close() //nolint:errcheck // test
	if err := dev.Connect(context.Background(), a, 1); !errors.Is(err, ErrNotReady) {
		t.Errorf("connect: %v", err)
	}
}

func TestConnectHonoursContext(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	g.halt() // it never answers
	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // test
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := dev.Connect(ctx, a, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("connect: %v", err)
	}
	_ = a.Close()
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if len(dev.conns) != 0 || dev.live != 0 {
		t.Error("the connection is still there")
	}
}

// A host that does not read must stop the guest, not fill our memory.
func TestSlowHostReader(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	path := serve(t, dev)
	g.listen(80)
	host, c := dial(t, path, 80), g.accept(80)
	want := noise(1, 3<<20)
	go func() {
		if _, err := c.Write(want); err == nil {
			c.shutdown(shutBoth)
		}
	}()
	// The guest is stuck once it has used all of its credit.
	g.until(func() bool { return c.sent-c.peerFwd == bufAlloc })
	dev.mu.Lock()
	if dev.backlog > bufAlloc {
		t.Errorf("%d bytes wait, credit is %d", dev.backlog, bufAlloc)
	}
	dev.mu.Unlock()
	if got, err := io.ReadAll(host); err != nil || !bytes.Equal(got, want) {
		t.Errorf("host read %d bytes of %d: %v", len(got), len(want), err)
	}
	c.awaitReset()
}

// Data sent by the guest before it closed reaches a slow host, and the guest need not wait for
// that.
func TestCloseBeforeTheHostReads(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	path := serve(t, dev)
	g.listen(80)
	host, c := dial(t, path, 80), g.accept(80)
	want := noise(2, 250_000) // within the credit, beyond the socket's buffer
	if _, err := c.Write(want); err != nil {
		t.Fatal(err)
	}
	c.shutdown(shutBoth)
	c.awaitReset()
	if got, err := io.ReadAll(host); err != nil || !bytes.Equal(got, want) {
		t.Errorf("host read %d bytes of %d: %v", len(got), len(want), err)
	}
}

func TestHostClosesAltogether(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	path := serve(t, dev)
	g.listen(80)
	for _, halfFirst := range []bool{false, true} {
		host, c := dial(t, path, 80), g.accept(80)
		if halfFirst {
			if err := host.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			g.until(func() bool { return c.peerDone == shutSend })
		}
		if err := host.Close(); err != nil {
			t.Fatal(err)
		}
		g.until(func() bool { return c.peerDone == shutBoth })
		if _, err := c.Write([]byte("x")); err == nil {
			t.Error("wrote to a closed host")
		}
		c.shutdown(shutBoth)
		c.awaitReset()
	}
	expectIdle(t, dev, g)
}

func TestGuestStopsReceiving(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	path := serve(t, dev)
	g.listen(80)
	host, c := dial(t, path, 80), g.accept(80)
	c.shutdown(shutReceive)
	g.until(func() bool { return c.peerDone&shutSend != 0 })
	if _, err := host.Write([]byte("x")); err == nil {
		t.Error("host wrote to a guest that does not receive")
	}
	if _, err := c.Write([]byte("still here")); err != nil {
		t.Fatal(err)
	}
	c.shutdown(shutSend)
	if got, err := io.ReadAll(host); err != nil || string(got) != "still here" {
		t.Errorf("host read %q, %v", got, err)
	}
	c.awaitReset()
}

// A guest without credit gets no data, and is asked once for credit.
func TestGuestWithoutCredit(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	path := serve(t, dev)
	g.listen(80)
	host, c := dial(t, path, 80), g.accept(80)
	want := noise(3, 5*guestBuf)
	go func() { _ = writeChunks(host, 3, want); _ = host.CloseWrite() }()
	g.until(func() bool { return c.received-c.consumed == guestBuf }) // not read yet
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
		t.Errorf("guest read %d bytes of %d: %v", len(got), len(want), err)
	}
}

// Invalid packets. Each names the answer that the device must give.
func TestProtocolViolations(t *testing.T) {
	base := header{srcCID: testCID, dstCID: HostCID, srcPort: 9, dstPort: 8, kind: typeStream, bufAlloc: guestBuf}
	mod := func(f func(*header)) header {
		h := base
		f(&h)
		return h
	}
	for _, c := range []struct {
		name  string
		h     header
		reset bool
	}{
		{"data for no connection", mod(func(h *header) { h.op = opData }), true},
		{"response nobody asked for", mod(func(h *header) { h.op = opResponse }), true},
		{"shutdown of nothing", mod(func(h *header) { h.op = opShutdown; h.flags = 3 }), true},
		{"operation 0", mod(func(h *header) { h.op = 0 }), true},
		{"operation 9999", mod(func(h *header) { h.op = 9999 }), true},
		{"datagram", mod(func(h *header) { h.op = opRequest; h.kind = 3 }), true},
		{"request for an unknown port", mod(func(h *header) { h.op = opRequest }), true},
		{"reset for no connection", mod(func(h *header) { h.op = opReset }), false},
		{"reset of a wrong type", mod(func(h *header) { h.op = opReset; h.kind = 9 }), false},
		{"from another guest", mod(func(h *header) { h.op = opRequest; h.srcCID = 8 }), false},
		{"to another guest", mod(func(h *header) { h.op = opRequest; h.dstCID = 9 }), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := startGuest(t, newDevice(ports{}))
			g.send(c.h, nil)
			marker := mod(func(h *header) { h.op, h.srcPort = opData, 77 })
			g.send(marker, nil) // always answered, and after the other
			want := 1
			if c.reset {
				want = 2
			}
			// The refusal of a request may come after the marker's, because it is dialled.
			g.until(func() bool {
				return len(g.seen) >= want && slices.ContainsFunc(g.seen, func(h header) bool { return h.dstPort == 77 })
			})
			g.mu.Lock()
			defer g.mu.Unlock()
			for _, h := range g.seen {
				if h.op != opReset {
					t.Errorf("answer %+v", h)
				}
			}
			if len(g.seen) != want || g.d.Fault() != nil {
				t.Errorf("%d answers, want %d: %+v, fault %v", len(g.seen), want, g.seen, g.d.Fault())
			}
		})
	}
}

func TestViolationsOnAConnection(t *testing.T) {
	for name, hit := range map[string]func(c *gconn){
		"more data than credit": func(c *gconn) {
			for range bufAlloc/(16<<10) + 40 {
				h := c.say(opData)
				h.len = 16 << 10
				c.g.send(h, make([]byte, h.len))
			}
		},
		"data after shutdown": func(c *gconn) {
			c.shutdown(shutSend)
			h := c.say(opData)
			h.len = 1
			c.g.send(h, []byte("x"))
		},
		"second request":    func(c *gconn) { c.g.send(c.say(opRequest), nil) },
		"second response":   func(c *gconn) { c.g.send(c.say(opResponse), nil) },
		"unknown operation": func(c *gconn) { c.g.send(c.say(42), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			dev := newDevice(nil)
			g := startGuest(t, dev)
			path := serve(t, dev)
			g.listen(80)
			host, c := dial(t, path, 80), g.accept(80)
			hit(c)
			c.awaitReset()
			if _, err := io.Copy(io.Discard, host); err != nil {
				t.Logf("host: %v", err)
			}
			if g.d.Fault() != nil {
				t.Errorf("one connection's fault broke the device: %v", g.d.Fault())
			}
			other := dial(t, path, 80) // others are unharmed
			if _, err := g.accept(80).Write([]byte("y")); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadFull(other, make([]byte, 1)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A guest that lies about the bytes it consumed gets no data, and other guests are unaffected.
func TestLyingAboutCredit(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	path := serve(t, dev)
	g.listen(80)
	host, c := dial(t, path, 80), g.accept(80)
	h := c.say(opCreditUpdate)
	h.fwdBack = 1 << 31
	g.send(h, nil)
	h = c.say(opCreditRequest)
	h.fwdBack = 1 << 31
	g.send(h, nil)
	if _, err := host.Write([]byte("held")); err != nil {
		t.Fatal(err)
	}
	g.send(c.say(opCreditUpdate), nil) // the truth
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "held" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestConnectionCap(t *testing.T) {
	dev := newDevice(ports{1: func(c Conn) { _, _ = io.Copy(io.Discard, c) }})
	g := startGuest(t, dev)
	var open []*gconn
	for range MaxConns {
		c, err := g.connect(1)
		if err != nil {
			t.Fatalf("connection %d: %v", len(open), err)
		}
		open = append(open, c)
	}
	if _, err := g.connect(1); err == nil {
		t.Error("one connection too many")
	}
	open[0].shutdown(shutBoth)
	open[0].awaitReset()
	for { // its goroutine ends a moment later
		if _, err := g.connect(1); err == nil {
			break
		}
	}
}

func TestBrokenFramesBreakTheDevice(t *testing.T) {
	for name, c := range map[string]struct {
		queue int
		segs  []virtiotest.Seg
	}{
		"short packet":              {1, []virtiotest.Seg{{GPA: 0x100, Len: 43}}},
		"writable packet":           {1, []virtiotest.Seg{{GPA: 0x100, Len: 44}, {GPA: 0x200, Len: 4, Write: true}}},
		"length beyond the buffers": {1, []virtiotest.Seg{{GPA: 0x300, Len: 44}}},
	} {
		t.Run(name, func(t *testing.T) {
			dev := newDevice(nil)
			g := startGuest(t, dev)
			path := serve(t, dev)
			g.listen(80)
			host := dial(t, path, 80)
			g.accept(80)
			g.mu.Lock()
			h := header{srcCID: testCID, dstCID: HostCID, len: 1, kind: typeStream, op: opData}
			var b [headerSize]byte
			h.encode(&b)
			copy(g.d.Mem.Bytes(0x300, headerSize), b[:])
			g.d.Queues[c.queue].Add(c.segs...)
			g.d.Queues[c.queue].ForceKick()
			g.mu.Unlock()
			if _, err := io.ReadAll(host); err != nil { // closed with the device
				t.Logf("host: %v", err)
			}
			if !g.d.MMIO.NeedsReset() {
				t.Error("device goes on")
			}
			if _, answer := dialRaw(t, path, "CONNECT 80\n"); answer != "" {
				t.Errorf("a broken device answers %q", answer)
			}
		})
	}
}

func TestResetInMidUse(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	path := serve(t, dev)
	g.listen(80)
	host, c := dial(t, path, 80), g.accept(80)
	go func() { _ = writeChunks(host, 9, noise(9, 1<<20)) }()
	g.until(func() bool { return c.received > 10_000 })
	g.halt()
	g.d.Write32(virtiotest.RegStatus, 0)
	if _, err := io.ReadAll(host); err != nil {
		t.Logf("host: %v", err)
	}
	if !dev.readyFails() {
		t.Error("ready without a driver")
	}
	d, err := g.d.Start(^uint64(0)) // a driver starts again
	if err != nil || len(d.Queues) != 3 || dev.readyFails() {
		t.Errorf("second driver: %v", err)
	}
}

func (d *Device) readyFails() bool { return !d.ready() }

func TestSaveRestore(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	path := serve(t, dev)
	g.listen(80)
	host, c := dial(t, path, 80), g.accept(80)
	if _, err := host.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	g.until(func() bool { return c.in.Len() == 6 })

	g.halt()
	g.d.MMIO.Pause()
	state, err := g.d.MMIO.Save()
	if err != nil {
		t.Fatal(err)
	}

	dev2 := newDevice(nil)
	r := g.restore(t, dev2, state)
	dev2.SetCID(300)
	path2 := serve(t, dev2)
	answer := make(chan string, 1)
	go func() { // before the guest runs: held until it has processed the reset
		_, line := dialRaw(t, path2, "CONNECT 80\n")
		answer <- line
	}()
	old := r.conns[c.key]
	r.d.MMIO.Resume()
	r.until(func() bool { return old.reset })
	if r.resets != 1 || r.cid != 300 {
		t.Errorf("%d transport resets, cid %d", r.resets, r.cid)
	}
	if line := <-answer; line == "" {
		t.Error("a connection made during restore was dropped")
	}
	r.accept(80)
	exchange(t, 5, dial(t, path2, 80), r.accept(80))

	// The source continues too, with its connections.
	if _, err := host.Write([]byte(", after")); err != nil {
		t.Error(err)
	}
	g.resume()
	g.until(func() bool { return c.in.Len() == 13 })
	g.mu.Lock()
	c.in.Reset()
	g.mu.Unlock()
	exchange(t, 6, host, c)
	exchange(t, 7, dial(t, path, 80), g.accept(80))
	if g.resets != 0 || c.reset {
		t.Error("the source was reset")
	}
}

// branch saves a guest that continues, and returns the restored one, paused.
func (g *guest) branch(t *testing.T, dev, dev2 *Device) *guest {
	t.Helper()
	g.halt()
	g.d.MMIO.Pause()
	defer g.resume()
	g.interrupt() // takes the used buffers, so that the device has every buffer
	g.mu.Lock()   // programs in the guest stop too
	defer g.mu.Unlock()
	if n := dev.receiveBuffers(); n != len(g.rxBufs) {
		t.Errorf("the paused device has %d receive buffers of %d", n, len(g.rxBufs))
	}
	state, err := g.d.MMIO.Save()
	if err != nil {
		t.Fatal(err)
	}
	return g.restore(t, dev2, state)
}

// receiveBuffers counts the buffers that the device could pop.
func (d *Device) receiveBuffers() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := (virtio.Chain{}); d.rx.Pop(&c); {
		n++
	}
	for range n {
		d.rx.PutBack()
	}
	return n
}

// resume continues a saved guest.
func (g *guest) resume() {
	g.d.MMIO.Resume()
	g.handleInterrupts()
	g.interrupt()
}

// If a client's handshake is incomplete at a save, at any step, the client gets its answer from the
// source. The restored guest accepts other clients.
func TestSaveInMidHandshake(t *testing.T) {
	for name, asked := range map[string]bool{"the guest was asked": true, "the guest was not asked": false} {
		t.Run(name, func(t *testing.T) {
			dev := newDevice(nil)
			g := startGuest(t, dev)
			path := serve(t, dev)
			g.listen(80)
			g.halt() // it answers nothing
			if !asked {
				g.d.MMIO.Pause()
			}
			answered := make(chan *net.UnixConn, 1)
			go func() {
				sock, line := dialRaw(t, path, "CONNECT 80\n")
				if line == "" {
					t.Error("the client was closed")
				}
				answered <- sock
			}()
			dev.awaitRequest(!asked)
			g.d.MMIO.Pause()
			g.mu.Lock()
			state, err := g.d.MMIO.Save()
			if err != nil {
				t.Fatal(err)
			}
			dev2 := newDevice(nil)
			r := g.restore(t, dev2, state)
			g.mu.Unlock()
			dev2.SetCID(300)
			r.d.MMIO.Resume()
			r.until(func() bool { return r.resets == 1 })
			g.resume()
			exchange(t, 8, <-answered, g.accept(80))

			fresh := dial(t, serve(t, dev2), 80)
			c := r.accept(80)
			if asked { // the source's came first, and its answer had no receiver
				c.awaitReset()
				c = r.accept(80)
			}
			exchange(t, 9, fresh, c)
		})
	}
}

// awaitRequest waits until a connection has sent a request to the guest, or is about to.
func (d *Device) awaitRequest(pending bool) {
	for ; ; time.Sleep(time.Millisecond) {
		d.mu.Lock()
		for _, c := range d.conns {
			if c.phase == phaseRequested && (c.need&needRequest != 0) == pending {
				d.mu.Unlock()
				return
			}
		}
		d.mu.Unlock()
	}
}

// Saves during traffic: the source loses and doubles no data. Every restored guest has all its
// receive buffers and accepts connections.
func TestSaveInMidTraffic(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	path := serve(t, dev)
	g.listen(80)
	host, c := dial(t, path, 80), g.accept(80)
	const size, rounds = 4 << 20, 8
	up, down := noise(1, size), noise(2, size)
	var traffic sync.WaitGroup
	traffic.Go(func() { _ = writeChunks(host, 3, down) })
	traffic.Go(func() { _ = writeChunks(c, 4, up) })
	got := make(map[string][]byte)
	var mu sync.Mutex
	for name, from := range map[string]io.Reader{"guest": c, "host": host} {
		traffic.Go(func() {
			b := make([]byte, size)
			n, err := io.ReadFull(from, b)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[name] = b[:n]
		})
	}
	for round := range uint32(rounds) {
		g.until(func() bool { return c.received > (round+1)*(size/rounds/2) })
		dev2 := newDevice(nil)
		r := g.branch(t, dev, dev2)
		r.d.MMIO.Resume()
		r.until(func() bool { return r.resets == 1 })
		exchange(t, uint64(round), dial(t, serve(t, dev2), 80), r.accept(80))
	}
	traffic.Wait()
	if !bytes.Equal(got["guest"], down) || !bytes.Equal(got["host"], up) {
		t.Error("the source's bytes differ")
	}
}

// Without an event buffer the reset waits for one.
func TestResetEventWaitsForABuffer(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	g.listen(80)
	g.halt()
	g.d.MMIO.Pause()
	state, err := g.d.MMIO.Save()
	if err != nil {
		t.Fatal(err)
	}
	g.keepEvents = true
	for round := range eventQueueSize + 1 { // each restore consumes one buffer
		dev2 := newDevice(nil)
		r := g.restore(t, dev2, state)
		r.d.MMIO.Resume()
		if round == eventQueueSize {
			dev2.mu.Lock()
			if dev2.reset.phase != resetWanted {
				t.Errorf("phase %d without a buffer", dev2.reset.phase)
			}
			dev2.mu.Unlock()
			r.keepEvents = false
			r.mu.Lock()
			r.addEvent(r.d.Mem.Alloc(8))
			r.d.Queues[2].Kick()
			r.mu.Unlock()
		}
		r.until(func() bool { return r.resets == 1 })
		r.halt()
		r.d.MMIO.Pause()
		if state, err = r.d.MMIO.Save(); err != nil {
			t.Fatal(err)
		}
		g = r
	}
}

func TestRestoreStateRefuses(t *testing.T) {
	good := newDevice(nil).SaveState()
	for name, bad := range map[string][]byte{
		"empty": nil, "cut short": good[:8], "too long": append(good[:len(good):len(good)], 0),
		"another version": append([]byte{9}, good[1:]...),
		"the host's cid":  append([]byte{1, 0, 2}, good[3:]...),
	} {
		if err := newDevice(nil).RestoreState(bad); !errors.Is(err, virtio.ErrBadState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGoldenState(t *testing.T) {
	const want = "\x01\x00" + "\x07\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x40"
	if got := newDevice(nil).SaveState(); string(got) != want {
		t.Errorf("state % x", got)
	}
}

// Close leaves no goroutine and no descriptor, in any situation.
func TestCloseFreesEverything(t *testing.T) {
	fds := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc")
		}
		return len(e)
	}
	goroutines, files := runtime.NumGoroutine(), fds()
	t.Run("use", func(t *testing.T) {
		dev := newDevice(ports{1: func(c Conn) { _, _ = io.Copy(io.Discard, c); _ = c.Close() }})
		g := startGuest(t, dev)
		path := serve(t, dev)
		g.listen(80)
		for range 4 {
			host, c := dial(t, path, 80), g.accept(80)
			go func() { _, _ = c.Write(make([]byte, 2<<20)) }() // stuck without a reader
			_, _ = host.Write(make([]byte, 1000))
			if _, err := g.connect(1); err != nil {
				t.Error(err)
			}
		}
		g.until(func() bool { return len(g.slots) > 0 })
		t.Cleanup(func() { // let the stuck writers go
			g.mu.Lock()
			defer g.mu.Unlock()
			for _, c := range g.conns {
				c.reset = true
			}
			g.changed.Broadcast()
		})
	})
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines || fds() > files; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b := make([]byte, 1<<16)
			t.Fatalf("%d goroutines of %d, %d files of %d\n%s", runtime.NumGoroutine(), goroutines, fds(), files, b[:runtime.Stack(b, true)])
		}
	}
}

func BenchmarkHostToGuest(b *testing.B) { benchmark(b, true) }
func BenchmarkGuestToHost(b *testing.B) { benchmark(b, false) }

func benchmark(b *testing.B, toGuest bool) {
	dev := newDevice(nil)
	g := startGuest(b, dev)
	path := serve(b, dev)
	g.listen(80)
	host, c := dial(b, path, 80), g.accept(80)
	var from io.Writer = host
	var to io.Reader = c
	if !toGuest {
		from, to = c, host
	}
	const chunk = 64 << 10
	p := make([]byte, chunk)
	b.SetBytes(chunk)
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for range b.N {
			if _, err := from.Write(p); err != nil {
				return
			}
		}
	}()
	if _, err := io.CopyN(io.Discard, to, int64(b.N)*chunk); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPing(b *testing.B) {
	dev := newDevice(nil)
	g := startGuest(b, dev)
	host, c := dialGuest(b, dev, g, 80)
	go func() {
		p := make([]byte, 64)
		for {
			n, err := c.Read(p)
			if err != nil {
				return
			}
			_, _ = c.Write(p[:n])
		}
	}()
	p := make([]byte, 64)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		_, _ = host.Write(p)
		if _, err := io.ReadFull(host, p); err != nil {
			b.Fatal(err)
		}
	}
}
