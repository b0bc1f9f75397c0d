package live

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pauseBuffer holds the pages copied during a pause. It is mapped and touched before the pause,
// which then only copies. It never grows.
type pauseBuffer struct {
	mem  []byte
	used int
}

func (t *pauseBuffer) reserve(n int64) (err error) {
	t.mem, err = unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("reserve %d bytes for the pause: %w", n, err)
	}
	return nil
}

// add appends as many bytes of p as fit, and returns their number.
func (t *pauseBuffer) add(p []byte) int {
	n := copy(t.mem[t.used:], p)
	t.used += n
	return n
}

// held returns all bytes added.
func (t *pauseBuffer) held() []byte { return t.mem[:t.used] }

func (t *pauseBuffer) free() {
	if t.mem != nil {
		unix.Munmap(t.mem)
		t.mem, t.used = nil, 0
	}
}
