package interp

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxOutput bounds what one evaluation's stdout, and stderr, may bring back.
const maxOutput = 4 << 20

// capture keeps what is written to a pipe, up to a cap. It reads all the time,
// so that nobody who writes ever waits; an idle pipe costs nothing.
type capture struct {
	f    *os.File
	done chan struct{}

	mu      sync.Mutex
	buf     []byte
	dropped int64
	syncs   []chan struct{}
}

func newCapture(f *os.File) *capture { return &capture{f: f, done: make(chan struct{})} }

// run reads until nobody can write any more, or close.
func (c *capture) run() {
	defer close(c.done)
	buf := make([]byte, 4096)
	for {
		n, err := c.f.Read(buf)
		c.keep(buf[:n])
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.drain(buf)
		default:
			return
		}
	}
}

// drain reads what is there without waiting and answers those who sync.
func (c *capture) drain(buf []byte) {
	// Cleared before the list is taken: a sync that comes later sets it anew.
	_ = c.f.SetReadDeadline(time.Time{})
	c.mu.Lock()
	waiting := c.syncs
	c.syncs = nil
	c.mu.Unlock()
	// Control, not Read, which a deadline set meanwhile would refuse.
	if raw, err := c.f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { c.readAll(int(fd), buf) })
	}
	for _, w := range waiting {
		close(w)
	}
}

// readAll empties the pipe; whoever writes faster than this is cut off at a
// pipe's capacity.
func (c *capture) readAll(fd int, buf []byte) {
	for total := 0; total < 1<<20; {
		n, err := syscall.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return
		}
		c.keep(buf[:n])
		total += n
	}
}

func (c *capture) keep(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(b), maxOutput-len(c.buf))
	c.buf = append(c.buf, b[:n]...)
	c.dropped += int64(len(b) - n)
}

// take returns everything written before the call, and forgets it.
func (c *capture) take() (string, int64) {
	w := make(chan struct{})
	c.mu.Lock()
	c.syncs = append(c.syncs, w)
	c.mu.Unlock()
	_ = c.f.SetReadDeadline(time.Now())
	select {
	case <-w:
	case <-c.done:
	}
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
