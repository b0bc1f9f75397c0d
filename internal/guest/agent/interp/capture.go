package interp

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxOutput bounds what one evaluation's stdout, and stderr, may bring back.
const maxOutput = 4 << 20

// capture keeps what is written to a pipe, up to a cap. It reads all the time,
// so that nobody who writes ever waits; an idle pipe costs nothing.
type capture struct {
	f    *os.File
	pipe syscall.RawConn
	done chan struct{}

	mu      sync.Mutex // guards what follows; who reads the pipe holds it until what was read is kept
	buf     []byte
	dropped int64
}

func newCapture(f *os.File) *capture {
	pipe, _ := f.SyscallConn() // fails for no file only
	return &capture{f: f, pipe: pipe, done: make(chan struct{})}
}

// run reads until nobody can write any more, or close.
func (c *capture) run() {
	defer close(c.done)
	_ = c.pipe.Read(func(fd uintptr) (ended bool) {
		for {
			if more, ended := c.drain(int(fd)); !more {
				return ended // else what comes next wakes it
			}
		}
	})
}

// drain keeps what is there, at most 1 MiB, without waiting. There may be more if it says so.
func (c *capture) drain(fd int) (more, ended bool) {
	var buf [4096]byte
	c.mu.Lock()
	defer c.mu.Unlock()
	for total := 0; total < 1<<20; {
		n, err := syscall.Read(fd, buf[:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
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

// take returns everything written before the call, and forgets it. It reads the pipe itself instead of having the
// reader woken, which for most evaluations would find nothing. Whoever writes faster than this is cut off.
func (c *capture) take() (string, int64) {
	_ = c.pipe.Control(func(fd uintptr) { c.drain(int(fd)) }) // a closed one has nothing more
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
