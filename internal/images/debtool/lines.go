package debtool

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
)

// maxLine bounds a line without an end; a progress bar may be one.
const maxLine = 8 << 10

// sureLines is how many of the last lines each stream has a place for: the kernel does not say
// which of two streams wrote first, and what a tool says on stderr as it ends is what matters.
const sureLines = 5

// lineWriter splits the output of several streams into lines and remembers the last ones.
type lineWriter struct {
	onLine func(string)

	mu      sync.Mutex // guards all below, and serialises onLine
	lines   int        // so far
	streams []*lineStream
}

// lineStream is one stream: a line of one never mixes with a line of the other.
type lineStream struct {
	to   *lineWriter
	buf  []byte
	tail []numbered // its last lines
}

// numbered is a line and its place among those of all streams, as they were read.
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

// flush hands over lines that had no end. The streams must have been closed.
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

// tail is the last lines of all streams, in the order in which they were read.
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

// withoutOldestLocked leaves the oldest line out, of the streams that have more than is sure.
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
