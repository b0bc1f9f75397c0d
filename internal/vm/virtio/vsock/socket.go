package vsock

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// readVec reads into bufs without waiting. It returns 0 and no error at the end.
func readVec(fd int, bufs [][]byte) (n int, err error) {
	if len(bufs) == 0 {
		return 0, unix.EINVAL
	}
	for {
		if len(bufs) == 1 {
			n, err = unix.Read(fd, bufs[0])
		} else {
			n, err = unix.Readv(fd, bufs)
		}
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// writeVec writes as much of bufs as the socket takes, without waiting.
func writeVec(fd int, bufs [][]byte) (n int, err error) {
	for {
		if len(bufs) == 1 {
			n, err = unix.Write(fd, bufs[0])
		} else {
			n, err = unix.Writev(fd, bufs)
		}
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// hungUp reports whether neither direction of the socket works any more.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLHUP != 0
}

// Pair returns a connected pair of sockets, for Connect or for a Dialer serving a host port inside
// the process.
func Pair() (a, b *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	if a, err = unixConn(fds[0]); err != nil {
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	if b, err = unixConn(fds[1]); err != nil {
		_ = a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// unixConn takes ownership of the descriptor.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket pair")
	defer f.Close() //nolint:errcheck // FileConn made a copy
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("use socket pair: %w", err)
	}
	return c.(*net.UnixConn), nil
}
