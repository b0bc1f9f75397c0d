// Package oomlog reads from the kernel's log (/dev/kmsg) which processes the guest's kernel has
// killed for lack of memory. It owns the open log and a list of the last kills. It reads the log
// only on request and is never woken. For the kills during a period, take a Mark at its start. Root
// in the guest can write to the log, so a kill is a text for people and no evidence.
package oomlog

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/oomline"
)

// Limits of kept kills and of reads.
const (
	maxKills   = 32
	maxRecords = 4096 // per read: a guest may write as fast as the agent reads
	maxRecord  = 8 << 10
)

// Kill is a process killed by the kernel.
type Kill struct {
	PID  int       // as the kernel's log names it
	Name string    // at most oomline.MaxName bytes
	Seen time.Time // time of reading the log
}

// Log is the kernel's log since Open. A nil Log has no kills. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex // guards the fields below
	fd    int        // not an os.File: Go's poller would wake for each line of the log
	buf   []byte
	kills []Kill // the last ones, oldest first
	seen  Mark   // number of kills so far
}

// Mark is a position in the log.
type Mark int

// Open starts at the end of the log. It returns nil if there is no log.
func Open(path string) *Log {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	_, _ = unix.Seek(fd, 0, unix.SEEK_END)
	return &Log{fd: fd, buf: make([]byte, maxRecord)}
}

// Close closes the log. Later calls find no new kills.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd >= 0 {
		_ = unix.Close(l.fd)
		l.fd = -1
	}
}

// Mark returns the current end of the log.
func (l *Log) Mark() Mark {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readLocked(time.Now())
	return l.seen
}

// Since returns the kills after m that are still kept, oldest first.
func (l *Log) Since(m Mark) []Kill {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readLocked(time.Now())
	return slices.Clone(l.kills[max(0, len(l.kills)-int(l.seen-m)):])
}

func (l *Log) readLocked(now time.Time) {
	for range maxRecords {
		n, err := unix.Read(l.fd, l.buf) // reads one record; EPIPE: some were overwritten, continue after them
		switch {
		case err == nil && n > 0:
			l.addLocked(l.buf[:n], now)
		case err == unix.EPIPE, err == unix.EINTR:
		default:
			return
		}
	}
}

func (l *Log) addLocked(record []byte, now time.Time) {
	k, ok := parse(record)
	if !ok {
		return
	}
	k.Seen = now
	l.seen++
	if l.kills = append(l.kills, k); len(l.kills) > maxKills {
		l.kills = slices.Delete(l.kills, 0, 1)
	}
}

// parse reads a record: prefix, semicolon, text.
func parse(record []byte) (k Kill, ok bool) {
	_, text, ok := bytes.Cut(record, []byte(";"))
	if !ok {
		return k, false
	}
	k.PID, k.Name, ok = oomline.Parse(text)
	return k, ok
}
