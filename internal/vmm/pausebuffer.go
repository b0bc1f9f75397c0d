package vmm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pauseBuffer holds what is copied during a pause. It is mapped and touched
// before, so that a copy is no more than that.
type pauseBuffer struct {
	mem  []byte
	used int
	over []byte // what did not fit
}

func (t *pauseBuffer) reserve(n int64) (err error) {
	t.mem, err = unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("reserve %d bytes for the pause: %w", n, err)
	}
	return nil
}

func (t *pauseBuffer) add(p []byte) {
	if t.over == nil && t.used+len(p) <= len(t.mem) {
		t.used += copy(t.mem[t.used:], p)
		return
	}
	if t.over == nil { // the guest wrote more than it was given credit for
		t.over = append(make([]byte, 0, 2*(t.used+len(p))), t.mem[:t.used]...)
	}
	t.over = append(t.over, p...)
}

func (t *pauseBuffer) bytes() []byte {
	if t.over != nil {
		return t.over
	}
	return t.mem[:t.used]
}

func (t *pauseBuffer) free() {
	if t.mem != nil {
		unix.Munmap(t.mem)
		t.mem = nil
	}
	t.over = nil
}
