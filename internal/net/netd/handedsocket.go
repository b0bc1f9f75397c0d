package netd

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netwire"
)

// handedSocket is the duplicate of a socket handed over to the VMM.
type handedSocket struct {
	hangups *hangups

	mu      sync.Mutex
	fd      int // -1 after close
	token   uint64
	watched bool
	severed bool
	in, out int64 // counts at the time of severing
}

func (h *handedSocket) send(w *netwire.End, id uint32) error {
	h.mu.Lock()
	fd := h.fd
	h.mu.Unlock()
	if fd < 0 {
		return unix.EBADF
	}
	return w.SendFD(id, fd)
}

// watch calls ended when both directions have ended.
func (h *handedSocket) watch(ended func()) {
	h.mu.Lock()
	if h.fd < 0 {
		h.mu.Unlock()
		return
	}
	setKeepAlive(h.fd)
	token, err := h.hangups.add(h.fd, ended)
	h.token, h.watched = token, err == nil
	h.mu.Unlock()
	if err != nil { // without a watch, its end would go unnoticed
		ended()
	}
}

// setKeepAlive sets the same options as package net. The VMM already has the socket.
func setKeepAlive(fd int) {
	for _, o := range []struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAlive.Idle.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAlive.Interval.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAlive.Count},
	} {
		unix.SetsockoptInt(fd, o.level, o.name, o.value)
	}
}

// counts returns the kernel's counts of bytes received from and sent to the far end.
func (h *handedSocket) counts() (in, out int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.severed:
		return h.in, h.out
	case h.fd < 0:
		return 0, 0
	}
	return bytesOf(h.fd)
}

// sever ends the connection with a reset for both ends. The VMM cannot connect the socket again,
// because its seccomp filter refuses that.
func (h *handedSocket) sever() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.severLocked()
}

func (h *handedSocket) severLocked() {
	if h.fd < 0 || h.severed {
		return
	}
	h.in, h.out = bytesOf(h.fd)
	h.severed = true
	if disconnect(h.fd) != nil {
		unix.SetsockoptLinger(h.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		unix.Shutdown(h.fd, unix.SHUT_RDWR)
	}
}

func bytesOf(fd int) (in, out int64) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, 0
	}
	in = int64(info.Bytes_received)
	switch info.State {
	case unix.BPF_TCP_CLOSE_WAIT, unix.BPF_TCP_LAST_ACK, unix.BPF_TCP_CLOSING, unix.BPF_TCP_TIME_WAIT:
		in-- // the kernel counts the far end's FIN as a byte; in CLOSE it is unknown if there was one
	}
	// Bytes_sent includes retransmitted bytes.
	return in, int64(info.Bytes_sent - info.Bytes_retrans)
}

// close closes the duplicate. If hard, it severs the connection first.
func (h *handedSocket) close(hard bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fd < 0 {
		return
	}
	if h.watched {
		h.hangups.remove(h.fd, h.token)
	}
	if hard {
		h.severLocked()
	}
	unix.Close(h.fd)
	h.fd = -1
}
