package netclient

import (
	"errors"
	"io"
	"sync"
	"syscall"

	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/vm/usernet"
	"golang.org/x/sys/unix"
)

// stream is a TCP flow's far half.
type stream struct {
	socket
	hard func() // makes the kernel reset the connection once its last descriptor is closed
}

// Close ends both directions, even if another process has the socket.
func (s *stream) Close() error {
	s.shutdown(unix.SHUT_RDWR)
	return s.socket.Close()
}

// Abort implements usernet.Stream.
func (s *stream) Abort() {
	s.hard()
	s.Close()
}

// expected is the future report of a wire about a stream's end.
type expected struct {
	wire *wire
	id   uint32
	*ending
}

// forget drops the interest in the end.
func (e expected) forget() { e.wire.forgetEnd(e.id, e.ending) }

// relayed is a stream relayed by forkd-net. Its end may be the far end's last byte, a reset, or the
// end of forkd-net itself; the wire reports which.
type relayed struct {
	stream
	end expected
}

// Read implements usernet.Stream.
func (r *relayed) Read(b []byte) (int, error) {
	n, err := r.stream.Read(b)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	<-r.end.known // closed at the end of the wire, or by our own close
	if r.end.finished {
		return n, io.EOF
	}
	return n, syscall.ECONNRESET
}

// Close implements usernet.Stream.
func (r *relayed) Close() error {
	r.end.forget()
	return r.stream.Close()
}

// Abort implements usernet.Stream.
func (r *relayed) Abort() {
	r.end.forget()
	r.stream.Abort()
}

// WaitRead waits until a read does not block.
func (s *stream) WaitRead() error { return waitRead(s.socket) }

// waitRead waits for data, an end or an error, and consumes none of them.
func waitRead(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}, 0)
		return n != 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

// packets holds buffers for a datagram and its prefix.
var packets = sync.Pool{New: func() any { return new([1 + netwire.MaxDatagram]byte) }}

// datagrams is the far half of a flow of UDP or of echo requests.
type datagrams struct{ socket }

// WaitRead waits until a read does not block.
func (d *datagrams) WaitRead() error { return waitRead(d.socket) }

// Read implements usernet.Datagrams.
func (d *datagrams) Read(b []byte) (int, error) {
	buf := packets.Get().(*[1 + netwire.MaxDatagram]byte)
	defer packets.Put(buf)
	n, err := d.File.Read(buf[:])
	if err != nil {
		return 0, err
	}
	p, refused, err := netwire.ParsePacket(buf[:n])
	switch {
	case err != nil:
		return 0, err
	case refused != 0:
		return 0, &usernet.Refusal{Reason: usernet.Reason(refused)}
	}
	return copy(b, p), nil
}

// Write implements usernet.Datagrams.
func (d *datagrams) Write(b []byte) (int, error) {
	if len(b) > netwire.MaxDatagram {
		return 0, unix.EMSGSIZE
	}
	buf := packets.Get().(*[1 + netwire.MaxDatagram]byte)
	defer packets.Put(buf)
	buf[0] = netwire.PacketData
	n := copy(buf[1:], b)
	if _, err := d.File.Write(buf[:1+n]); err != nil {
		return 0, err
	}
	return n, nil
}
