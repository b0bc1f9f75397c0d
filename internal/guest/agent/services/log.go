package services

import (
	"bytes"
	"fmt"
	"sync"
)

// log keeps the end of a service's output. It grows up to its limit, so that a quiet service costs
// a clone nothing.
type log struct {
	mu    sync.Mutex
	limit int
	buf   []byte        // the last bytes; a ring once it has limit bytes
	next  int           // index of the oldest byte in a full ring
	total int64         // bytes written so far
	more  chan struct{} // closed and replaced when bytes arrive; nil without a reader that waits
}

func newLog(limit int) *log { return &log{limit: limit} }

// Write implements io.Writer. It never fails.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += int64(len(p))
	rest := p[max(0, len(p)-l.limit):]
	if room := l.limit - len(l.buf); room > 0 {
		n := min(room, len(rest))
		l.buf = append(l.buf, rest[:n]...)
		rest = rest[n:]
	}
	for len(rest) > 0 {
		n := copy(l.buf[l.next:], rest)
		l.next, rest = (l.next+n)%l.limit, rest[n:]
	}
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return len(p), nil
}

// all returns the bytes that are kept, and the number of bytes written so far.
func (l *log) all() ([]byte, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(bytes.Clone(l.buf[l.next:]), l.buf[:l.next]...), l.total
}

// fill sets the content of a new log.
func (l *log) fill(kept []byte, total int64) {
	_, _ = l.Write(kept)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total = max(total, l.total)
}

// span returns the number of bytes written, and how many of the first ones are gone.
func (l *log) span() (total, lost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total, l.total - int64(len(l.buf))
}

// read copies bytes from an offset on into p. If they are gone, it begins with the oldest ones that
// are kept: start is the offset of the first byte in p. more is closed when there are bytes after a
// read of none.
func (l *log) read(p []byte, from int64) (n int, start int64, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.total - int64(len(l.buf))
	start = min(max(from, lost), l.total)
	skip := int(start - lost)
	for n < len(p) && skip+n < len(l.buf) {
		at := (l.next + skip + n) % len(l.buf)
		end := len(l.buf)
		if at < l.next {
			end = l.next
		}
		n += copy(p[n:], l.buf[at:end])
	}
	if n == 0 {
		if l.more == nil {
			l.more = make(chan struct{})
		}
		more = l.more
	}
	return n, start, more
}

// tail returns the offset of the last lines.
func (l *log) tail(lines int) int64 {
	total, lost := l.span()
	all := make([]byte, total-lost)
	n, start, _ := l.read(all, lost)
	all = all[:n]
	end := len(bytes.TrimSuffix(all, []byte("\n")))
	for range lines {
		if end < 0 {
			break
		}
		end = bytes.LastIndexByte(all[:end], '\n')
	}
	if lines == 0 {
		return start + int64(n)
	}
	return start + int64(end) + 1
}

// gap is the line in place of bytes that a reader missed.
func gap(n int64) []byte {
	return fmt.Appendf(nil, "[forkd: %d bytes of this log are gone]\n", n)
}
