package live

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
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	devsock "github.com/forkd/forkd/internal/vm/virtio/vsock"
)

// Services of the guest.
const (
	portEcho   = 1001
	portDigest = 1002 // reads to the end, answers with a digest
	portSource = 1003 // takes a number of bytes, sends as many
	portStay   = 1004 // keeps the connection and prints how it ended on the console
	portNobody = 1999
)

// Ports of the host.
const (
	hostEcho    = 50
	hostRefused = 51
)

func init() {
	for port, serve := range map[uint32]func(net.Conn){
		portEcho:   func(c net.Conn) { io.Copy(c, c) },
		portDigest: serveDigest,
		portSource: serveSource,
		portStay:   serveStay,
	} {
		guestServices[port] = serve
	}
	guestCommands["cid"] = func([]string) (string, error) {
		cid, err := vsock.ContextID()
		return fmt.Sprint(cid), err
	}
	guestCommands["dial"] = cmdDial
}

// randomBytes returns the same bytes on both sides.
func randomBytes(n int, seed uint64) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, n)
	rand.NewChaCha8(key).Read(b)
	return b
}

func serveDigest(c net.Conn) {
	h := sha256.New()
	n, err := io.Copy(h, c)
	fmt.Fprintf(c, "%d %x %v\n", n, h.Sum(nil), err)
}

func serveSource(c net.Conn) {
	var n uint64
	if binary.Read(c, binary.LittleEndian, &n) != nil {
		return
	}
	c.Write(randomBytes(int(n), n))
	c.(*vsock.Conn).CloseWrite()
	io.Copy(io.Discard, c) // until the host closes as well
	fmt.Println("source: the host closed")
}

func serveStay(c net.Conn) {
	fmt.Println("stay: connected")
	io.Copy(io.Discard, c)
	// A polling reader only sees an end; the reason is the socket's error.
	var reason error
	if raw, err := c.(*vsock.Conn).SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
			if reason = err; err == nil && n != 0 {
				reason = unix.Errno(n)
			}
		})
	}
	fmt.Println("stay: ended:", reason)
}

// cmdDial connects to a port of the host, sends a word and returns the answer.
func cmdDial(args []string) (string, error) {
	port, _ := strconv.ParseUint(args[0], 10, 32)
	c, err := vsock.Dial(vsock.Host, uint32(port), nil)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write(randomBytes(100_000, port)); err != nil {
		return "", err
	}
	c.CloseWrite()
	b, err := io.ReadAll(c)
	return fmt.Sprintf("%d %x", len(b), sha256.Sum256(b)), err
}

// dialTestHost serves hostEcho, and refuses the rest.
func dialTestHost(_ context.Context, port uint32) (net.Conn, error) {
	if port != hostEcho {
		return nil, errors.New("nobody is there")
	}
	a, b, err := devsock.Pair()
	if err != nil {
		return nil, err
	}
	go func() {
		defer b.Close()
		io.Copy(b, b)
	}()
	return a, nil
}

func testVsock(t *testing.T, v *serveVM) {
	t.Run("echo", func(t *testing.T) { echo(t, v, 1000) })
	t.Run("8 MiB to the guest", func(t *testing.T) {
		b := randomBytes(8<<20, 1)
		c := v.dialGuest(t, portDigest)
		defer c.Close()
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		c.CloseWrite() // half: the answer comes the other way
		want := fmt.Sprintf("%d %x <nil>\n", len(b), sha256.Sum256(b))
		if got := string(readAll(t, c)); got != want {
			t.Errorf("the guest got %q, want %q", got, want)
		}
	})
	t.Run("8 MiB from the guest", func(t *testing.T) {
		const n = 8 << 20
		c := v.dialGuest(t, portSource)
		defer c.Close()
		binary.Write(c, binary.LittleEndian, uint64(n))
		if got := readAll(t, c); !bytes.Equal(got, randomBytes(n, n)) {
			t.Errorf("got %d bytes that are not what the guest sent", len(got))
		}
		// The guest has closed only its half: it still accepts our data.
		if _, err := c.Write([]byte("late")); err != nil {
			t.Error(err)
		}
		c.Close()
		v.waitFor("source: the host closed")
	})
	t.Run("many connections at once", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() { echo(t, v, 1000*(i+1)) })
		}
		wg.Wait()
	})
	t.Run("nobody listens", func(t *testing.T) {
		if c, err := v.tryDial(portNobody); err == nil {
			c.Close()
			t.Error("the guest accepted on a port where nobody listens")
		} else if !strings.Contains(err.Error(), "refused") {
			t.Errorf("got %v, want a refusal", err)
		}
	})
	t.Run("guest dials the host", func(t *testing.T) {
		b := randomBytes(100_000, hostEcho)
		if got, want := v.ask(t, "dial %d", hostEcho), fmt.Sprintf("%d %x", len(b), sha256.Sum256(b)); got != want {
			t.Errorf("the guest got back %q, want %q", got, want)
		}
	})
	t.Run("host refuses", func(t *testing.T) {
		if got, err := v.try("dial %d", hostRefused); err == nil || !strings.Contains(err.Error(), unix.ECONNRESET.Error()) {
			t.Errorf("got %q, %v, want %v", got, err, unix.ECONNRESET)
		}
	})
	t.Run("its address", func(t *testing.T) {
		if got := v.ask(t, "cid"); got != "3" {
			t.Errorf("the guest has CID %s, want 3", got)
		}
	})
}

// echo sends n bytes and reads them back meanwhile. It may run in another goroutine than the
// test's.
func echo(t *testing.T, v *serveVM, n int) {
	c, err := v.tryDial(portEcho)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	b := randomBytes(n, uint64(n))
	go func() {
		c.Write(b)
		c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, b) {
		t.Errorf("sent %d bytes, got %d others back (%v)", n, len(got), err)
	}
}

// connectAndStay opens a connection that the guest keeps.
func (v *serveVM) connectAndStay(t *testing.T) *net.UnixConn {
	t.Helper()
	c := v.dialGuest(t, portStay)
	v.waitFor("stay: connected")
	return c
}

// checkHeldReset expects a restored guest to have lost its kept connection.
func (v *serveVM) checkHeldReset(t *testing.T) {
	t.Helper()
	v.waitFor("stay: ended: " + unix.ECONNRESET.Error())
}
