package netd

import (
	"sync"

	"golang.org/x/sys/unix"
)

// wires notifies VMs of readable wires. One goroutine serves all of them and takes one message of
// each in turn. So a VMM that floods its wire delays others only by one message.
type wires struct {
	epoll *epoll
	done  chan struct{}

	mu   sync.Mutex
	last uint64
	vms  map[uint64]*vm // by token
}

func newWires() (*wires, error) {
	e, err := newEpoll("wires")
	if err != nil {
		return nil, err
	}
	w := &wires{epoll: e, done: make(chan struct{}), vms: map[uint64]*vm{}}
	go w.run()
	return w, nil
}

// add calls v.readable while its wire is readable.
func (w *wires) add(v *vm) (token uint64, err error) {
	w.mu.Lock()
	w.last++
	token = w.last
	w.vms[token] = v
	w.mu.Unlock()
	err = v.wire.Control(func(fd int) error { return w.epoll.add(fd, unix.EPOLLIN, token) })
	if err != nil {
		w.forget(token)
	}
	return token, err
}

// remove ends the calls. One may still be running.
func (w *wires) remove(v *vm, token uint64) {
	w.forget(token)
	v.wire.Control(func(fd int) error { w.epoll.remove(fd); return nil })
}

func (w *wires) forget(token uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.vms, token)
}

func (w *wires) close() {
	w.epoll.close()
	<-w.done
}

func (w *wires) run() {
	defer close(w.done)
	w.epoll.run(func(token uint64) {
		w.mu.Lock()
		v := w.vms[token]
		w.mu.Unlock()
		if v != nil {
			v.readable()
		}
	})
}
