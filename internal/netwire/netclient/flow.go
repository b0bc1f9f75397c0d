package netclient

import (
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/forkd/forkd/internal/netwire"
	"github.com/forkd/forkd/internal/usernet"
	"golang.org/x/sys/unix"
)

// socket is what TCP's and unix sockets have in common.
type socket interface {
	net.Conn
	syscall.Conn
	CloseRead() error
	CloseWrite() error
}

// stream is a TCP flow's far half.
type stream struct {
	socket
	hard func() // has the kernel reset the connection once nobody has it any more
}

// Close ends both directions, whoever else has the socket.
func (s *stream) Close() error {
	s.CloseRead()
	s.CloseWrite()
	return s.socket.Close()
}

// Abort implements usernet.Stream.
func (s *stream) Abort() {
	s.hard()
	s.Close()
}

// WaitRead waits until a read does not.
func (s *stream) WaitRead() error { return waitRead(s.socket) }

// waitRead waits for something to read, an end or an error, and takes none of them.
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

// packets are buffers for a datagram and its prefix.
var packets = sync.Pool{New: func() any { return new([1 + netwire.MaxDatagram]byte) }}

// datagrams is the far half of a flow of UDP or of echo requests.
type datagrams struct{ *net.UnixConn }

// WaitRead waits until a read does not.
func (d *datagrams) WaitRead() error { return waitRead(d.UnixConn) }

// Read implements usernet.Datagrams.
func (d *datagrams) Read(b []byte) (int, error) {
	buf := packets.Get().(*[1 + netwire.MaxDatagram]byte)
	defer packets.Put(buf)
	n, err := d.UnixConn.Read(buf[:])
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
	if _, err := d.UnixConn.Write(buf[:1+n]); err != nil {
		return 0, err
	}
	return n, nil
}
