package netd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// connect does the same as dial for TCP, for a socket that is not read before the VMM gets it. It
// creates only a descriptor, because a net.Conn needs twice the system calls. The address is never
// the host's own, so connections to itself need no check.
func (v *vm) connect(ctx context.Context, to netip.AddrPort, q Question, verdict Verdict) (fd int, err error) {
	if err := v.lookAgain(q.Protocol, to, q, verdict); err != nil {
		return -1, err
	}
	family, addr := sockaddr(to)
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = unix.Connect(fd, addr)
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		err = connected(ctx, fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", to, err)
	}
	return fd, nil
}

func sockaddr(to netip.AddrPort) (family int, addr unix.Sockaddr) {
	if to.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
}

// connected waits for a connection. A nearby one is already connected. For others the runtime polls
// a duplicate, because the runtime never gives a polled descriptor back.
func connected(ctx context.Context, fd int) error {
	if !writable(fd) {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		f := os.NewFile(uintptr(dup), "connecting")
		defer f.Close()
		if err := waitWritable(ctx, f); err != nil {
			return err
		}
	}
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	return err
}

func waitWritable(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	f.SetWriteDeadline(time.Now().Add(dialTimeout))
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	err = raw.Write(func(fd uintptr) bool { return writable(int(fd)) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// writable also returns true if connecting has failed.
func writable(fd int) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
	return n > 0
}
