package netd

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups tells of sockets that have ended in both directions. It asks the
// kernel for nothing else, so data that passes through a handed-over socket
// wakes nobody here.
type hangups struct {
	file *os.File // an epoll instance, in the runtime's own
	raw  syscall.RawConn
	done chan struct{}

	mu    sync.Mutex
	last  uint64
	watch map[uint64]func() // by token
}

func newHangups() (*hangups, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), "hangups")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	h := &hangups{file: file, raw: raw, done: make(chan struct{}), watch: map[uint64]func(){}}
	go h.run()
	return h, nil
}

// add has ended called once, when fd has ended in both directions, which may be
// so already. Calls are not made after remove has returned, unless one is under way.
func (h *hangups) add(fd int, ended func()) (token uint64, err error) {
	h.mu.Lock()
	h.last++
	token = h.last
	h.watch[token] = ended
	h.mu.Unlock()
	ev := unix.EpollEvent{Events: unix.EPOLLET, Fd: int32(token), Pad: int32(token >> 32)} //nolint:gosec // halves of it
	var ctl error
	err = h.raw.Control(func(epoll uintptr) {
		ctl = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, fd, &ev)
	})
	if err == nil {
		err = os.NewSyscallError("epoll_ctl", ctl)
	}
	if err != nil {
		h.forget(token)
		return 0, err
	}
	return token, nil
}

// remove is to be called before fd is closed, which it might outlive otherwise.
func (h *hangups) remove(fd int, token uint64) {
	h.forget(token)
	h.raw.Control(func(epoll uintptr) {
		unix.EpollCtl(int(epoll), unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{})
	})
}

func (h *hangups) forget(token uint64) (ended func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ended = h.watch[token]
	delete(h.watch, token)
	return ended
}

func (h *hangups) close() {
	h.file.Close()
	<-h.done
}

func (h *hangups) run() {
	defer close(h.done)
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := h.raw.Read(func(epoll uintptr) bool {
			n, _ = unix.EpollWait(int(epoll), events, 0)
			return n > 0
		})
		if err != nil {
			return
		}
		for _, ev := range events[:n] {
			if ended := h.forget(uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32); ended != nil {
				ended()
			}
		}
	}
}
