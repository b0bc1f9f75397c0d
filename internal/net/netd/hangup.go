package netd

import (
	"sync"

	"golang.org/x/sys/unix"
)

// hangups reports sockets that have ended in both directions. It requests no other events, so data
// on a handed-over socket does not wake this process.
type hangups struct {
	epoll *epoll
	done  chan struct{}

	mu    sync.Mutex
	last  uint64
	watch map[uint64]func() // by token
}

func newHangups() (*hangups, error) {
	e, err := newEpoll("hangups")
	if err != nil {
		return nil, err
	}
	h := &hangups{epoll: e, done: make(chan struct{}), watch: map[uint64]func(){}}
	go h.run()
	return h, nil
}

// add calls ended once, when fd has ended in both directions, possibly immediately. After remove
// has returned, there are no new calls, but one may still be running.
func (h *hangups) add(fd int, ended func()) (token uint64, err error) {
	h.mu.Lock()
	h.last++
	token = h.last
	h.watch[token] = ended
	h.mu.Unlock()
	if err := h.epoll.add(fd, unix.EPOLLET, token); err != nil {
		h.forget(token)
		return 0, err
	}
	return token, nil
}

// remove must be called before fd is closed; otherwise a reused descriptor could stay registered.
func (h *hangups) remove(fd int, token uint64) {
	h.forget(token)
	h.epoll.remove(fd)
}

func (h *hangups) forget(token uint64) (ended func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ended = h.watch[token]
	delete(h.watch, token)
	return ended
}

func (h *hangups) close() {
	h.epoll.close()
	<-h.done
}

func (h *hangups) run() {
	defer close(h.done)
	h.epoll.run(func(token uint64) {
		if ended := h.forget(token); ended != nil {
			ended()
		}
	})
}
