package netnative

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// space is a network namespace with a thread in it.
type space struct {
	calls chan func()
	fd    int // the namespace
}

// newSpace makes a namespace if fresh is true. Otherwise it returns a thread in the process's own
// namespace.
func newSpace(fresh bool) (*space, error) {
	s := &space{calls: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := s.enter(fresh)
		ready <- err
		if err != nil {
			return
		}
		defer unix.Close(s.fd)
		for f := range s.calls {
			f()
		}
	}()
	return s, <-ready
}

func (s *space) enter(fresh bool) (err error) {
	if fresh {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
	}
	s.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return err
}

func (s *space) close() { close(s.calls) }

// do runs f on the namespace's thread. Sockets made by f stay in the namespace.
func (s *space) do(f func() error) error {
	done := make(chan error, 1)
	s.calls <- func() { done <- f() }
	return <-done
}

// listen listens in the namespace.
func (s *space) listen(addr string) (l net.Listener, err error) {
	err = s.do(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l, err
}

// dial connects from the namespace.
func (s *space) dial(to netip.AddrPort) (c net.Conn, err error) {
	err = s.do(func() error {
		fd, err := connect(to)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "guest's socket")
		defer f.Close()
		c, err = net.FileConn(f)
		return err
	})
	return c, err
}

// connect connects on the calling thread, and so in its namespace. Package net may use another
// thread.
func connect(to netip.AddrPort) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", to, err)
	}
	return fd, nil
}
