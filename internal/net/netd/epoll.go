package netd

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// epoll is an epoll instance inside the runtime's own. Its descriptors have tokens and cost no
// goroutine.
type epoll struct {
	file *os.File
	raw  syscall.RawConn
}

func newEpoll(name string) (*epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), name)
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &epoll{file, raw}, nil
}

func (e *epoll) close() { e.file.Close() }

func (e *epoll) add(fd int, events uint32, token uint64) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(token), Pad: int32(token >> 32)} // #nosec G115 -- halves of it
	var ctl error
	err := e.raw.Control(func(epoll uintptr) {
		ctl = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, fd, &ev)
	})
	if err == nil {
		err = os.NewSyscallError("epoll_ctl", ctl)
	}
	return err
}

// remove must be called before fd is closed; otherwise a reused descriptor could stay registered.
func (e *epoll) remove(fd int) {
	e.raw.Control(func(epoll uintptr) {
		unix.EpollCtl(int(epoll), unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{})
	})
}

// run calls happened with the token of each event, until the instance is closed.
func (e *epoll) run(happened func(token uint64)) {
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := e.raw.Read(func(epoll uintptr) bool {
			n, _ = unix.EpollWait(int(epoll), events, 0)
			return n > 0
		})
		if err != nil {
			return
		}
		for _, ev := range events[:n] {
			happened(uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32)
		}
	}
}
