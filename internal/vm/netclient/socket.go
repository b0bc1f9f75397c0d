package netclient

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// socket is a received descriptor. It is used without package net, which would query the kernel for
// addresses and duplicate it: a third of the cost of connecting.
type socket struct {
	*os.File
	domain, kind int // AF_INET, SOCK_STREAM
}

// socketOf takes ownership of a socket. If f is not a socket, it is closed.
func socketOf(f *os.File) (s socket, err error) {
	s.File = f
	ctl := s.control(func(fd int) {
		if s.domain, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil {
			s.kind, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		}
	})
	if err := errors.Join(ctl, err); err != nil {
		f.Close()
		return socket{}, fmt.Errorf("take flow's descriptor over: %w", err)
	}
	return s, nil
}

func (s socket) String() string {
	return fmt.Sprintf("a socket of domain %d, type %d", s.domain, s.kind)
}

func (s socket) control(f func(fd int)) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

func (s socket) shutdown(how int) (err error) {
	ctl := s.control(func(fd int) { err = os.NewSyscallError("shutdown", unix.Shutdown(fd, how)) })
	return errors.Join(ctl, err)
}

// CloseWrite ends the sending of data.
func (s socket) CloseWrite() error { return s.shutdown(unix.SHUT_WR) }

// resetOnClose makes the kernel reset the connection when it is closed.
func (s socket) resetOnClose() {
	s.control(func(fd int) { unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) })
}
