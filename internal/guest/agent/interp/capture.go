package interp

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxOutput limits the stdout, and the stderr, of one evaluation.
const maxOutput = 4 << 20

// capture keeps the bytes written to a pipe, up to a limit. It reads all the time, so writers never
// wait. An idle pipe costs no work.
type capture struct {
	f    *os.File
	pipe syscall.RawConn
	gate *sync.RWMutex // read-locked while bytes are read and stored
	done chan struct{}

	mu      sync.Mutex // guards the fields below; held from reading the pipe until the bytes are stored
	buf     []byte
	dropped int64
}

func newCapture(f *os.File, gate *sync.RWMutex) *capture {
	pipe, _ := f.SyscallConn() // never fails for an open file
	return &capture{f: f, pipe: pipe, gate: gate, done: make(chan struct{})}
}

// run reads until all writers have closed the pipe, or until close.
func (c *capture) run() {
	defer close(c.done)
	_ = c.pipe.Read(func(fd uintptr) (ended bool) {
		for {
			if more, ended := c.drain(int(fd)); !more {
				return ended // woken by the next output
			}
		}
	})
}

// drain reads the available bytes, at most 1 MiB, without waiting. If more is true, there may be
// more bytes.
func (c *capture) drain(fd int) (more, ended bool) {
	var buf [4096]byte
	c.gate.RLock()
	defer c.gate.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for total := 0; total < 1<<20; {
		n, err := syscall.Read(fd, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false, false
		case err != nil || n <= 0:
			return false, true
		default:
			c.keepLocked(buf[:n])
			total += n
		}
	}
	return true, false
}

func (c *capture) keepLocked(b []byte) {
	n := min(len(b), maxOutput-len(c.buf))
	c.buf = append(c.buf, b[:n]...)
	c.dropped += int64(len(b) - n)
}

// take returns all output from before the call and clears it. It reads the pipe itself, because
// waking the reader would be useless for most evaluations. A process that writes faster than take
// reads is cut off.
func (c *capture) take() (string, int64) {
	_ = c.pipe.Control(func(fd uintptr) { c.drain(int(fd)) }) // no bytes if it is closed
	c.mu.Lock()
	defer c.mu.Unlock()
	s, d := string(c.buf), c.dropped
	c.buf, c.dropped = nil, 0
	return s, d
}

// close ends run and waits for it.
func (c *capture) close() {
	_ = c.f.Close()
	<-c.done
}
