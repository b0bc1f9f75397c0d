// Package startgate makes the vCPUs of a restored VM wait until the daemon opens a gate, which
// needs no message to the VMM. Several VMs may wait at one gate.
//
// A gate is a word in a page of shared memory. Only its maker can write it (the file carries
// F_SEAL_FUTURE_WRITE, Linux 5.1), so a VMM taken over by its guest can neither open the gate for
// its siblings nor keep it shut. If the maker dies, the gate keeps its state.
package startgate

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// size is the size of the file. Its first word is the gate.
const size = 4096

// Gate is the maker's side.
type Gate struct {
	file *os.File
	page []byte
}

// New returns a shut gate.
func New() (*Gate, error) {
	fd, err := unix.MemfdCreate("start gate", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make start gate: %w", err)
	}
	f := os.NewFile(uintptr(fd), "start gate")
	page, err := seal(fd)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("make start gate: %w", err)
	}
	return &Gate{file: f, page: page}, nil
}

// seal maps the page for writing, and then forbids further writable mappings.
func seal(fd int) ([]byte, error) {
	if err := unix.Ftruncate(fd, size); err != nil {
		return nil, err
	}
	page, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	const seals = unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Munmap(page)
		return nil, err
	}
	return page, nil
}

// File returns the file that the waiting side loads. It stays the gate's.
func (g *Gate) File() *os.File { return g.file }

// Open opens the gate for all current and future waiters.
func (g *Gate) Open() error {
	atomic.StoreUint32(word(g.page), 1)
	if err := futexWake(g.page); err != nil {
		return fmt.Errorf("open start gate: %w", err)
	}
	return nil
}

// Close frees the maker's side. Waiters keep waiting.
func (g *Gate) Close() {
	unix.Munmap(g.page)
	g.file.Close()
}

// Entrance is the waiting side.
type Entrance struct {
	page   []byte
	lookUp time.Duration
}

// Load maps a gate; the file may be closed after.
func Load(f *os.File) (*Entrance, error) {
	page, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map start gate: %w", err)
	}
	return &Entrance{page: page, lookUp: lookUp}, nil
}

// lookUp is the interval at which a waiter calls giveUp without a signal. Each call costs a
// thread's wake-up, 0.7 ms of CPU time under emulation: at 20 a second, a hundred waiters took a
// third of the time of the fork they waited for.
const lookUp = 10 * time.Second

// Wait blocks the calling thread until the gate opens (true) or giveUp returns true (false). giveUp
// is called after each signal and every 10 s. A signal that arrives just before Wait blocks is
// missed, so send more than one.
func (e *Entrance) Wait(giveUp func() bool) bool {
	for atomic.LoadUint32(word(e.page)) == 0 {
		if giveUp() {
			return false
		}
		futexWait(e.page, e.lookUp) // check again, whatever ended the wait
	}
	return true
}

// Close frees the waiting side. No thread may be waiting.
func (e *Entrance) Close() { unix.Munmap(e.page) }

// Now returns the time shared by the waiting and opening sides, CLOCK_MONOTONIC in nanoseconds.
func Now() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}
