package debtool

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
)

// maxLine limits a line without an end, such as a progress bar.
const maxLine = 8 << 10

// sureLines is the number of last lines always kept of each stream. The kernel does not reveal which of two
// streams was written first, and a tool's final output on stderr is the most important.
const sureLines = 5

// lineWriter splits the output of several streams into lines and remembers the last ones.
type lineWriter struct {
	onLine func(string)

	mu      sync.Mutex // guards the fields below, and serialises onLine
	lines   int        // number of lines read
	streams []*lineStream
}

// lineStream is one stream. Its lines are never mixed with another stream's.
type lineStream struct {
	to   *lineWriter
	buf  []byte
	tail []numbered // its last lines
}

// numbered is a line with its position among the lines of all streams, in the order of reading.
type numbered struct {
	at   int
	line string
}

func (w *lineWriter) stream() *lineStream {
	s := &lineStream{to: w}
	w.streams = append(w.streams, s)
	return s
}

func (s *lineStream) Write(p []byte) (int, error) {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.buf = append(s.buf, p...)
	for {
		i := bytes.IndexAny(s.buf, "\n\r")
		if i < 0 && len(s.buf) <= maxLine {
			return len(p), nil
		}
		if i < 0 {
			i = maxLine
		}
		s.lineLocked(s.buf[:i])
		s.buf = s.buf[i+1:]
	}
}

// flush passes on the remaining lines without an end. The streams must be closed.
func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.streams {
		s.lineLocked(s.buf)
		s.buf = nil
	}
}

func (s *lineStream) lineLocked(b []byte) {
	line := strings.TrimRight(strings.ToValidUTF8(string(b), "?"), " \t")
	if line == "" {
		return
	}
	if len(s.tail) == tailLines {
		s.tail = append(s.tail[:0], s.tail[1:]...)
	}
	s.to.lines++
	s.tail = append(s.tail, numbered{s.to.lines, line})
	if s.to.onLine != nil {
		s.to.onLine(line)
	}
}

// tail returns the last lines of all streams, in the order of reading.
func (w *lineWriter) tail() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []numbered
	for _, s := range w.streams {
		all = append(all, s.tail...)
	}
	for len(all) > tailLines {
		all = w.withoutOldestLocked(all)
	}
	slices.SortFunc(all, func(a, b numbered) int { return cmp.Compare(a.at, b.at) })
	lines := make([]string, len(all))
	for i, l := range all {
		lines[i] = l.line
	}
	return lines
}

// withoutOldestLocked removes the oldest line of the streams that have more than sureLines.
func (w *lineWriter) withoutOldestLocked(all []numbered) []numbered {
	var from *lineStream
	for _, s := range w.streams {
		if len(s.tail) > sureLines && (from == nil || s.tail[0].at < from.tail[0].at) {
			from = s
		}
	}
	oldest := from.tail[0]
	from.tail = from.tail[1:]
	return slices.DeleteFunc(all, func(l numbered) bool { return l == oldest })
}
