package debtool

import (
	"bytes"
	"strings"
	"sync"
)

// maxLine bounds a line without an end; a progress bar may be one.
const maxLine = 8 << 10

// lineWriter splits the output of several streams into lines and remembers the last ones.
type lineWriter struct {
	onLine func(string)

	mu      sync.Mutex // guards all below, and serialises onLine
	tail    []string
	streams []*lineStream
}

// lineStream is one stream: a line of one never mixes with a line of the other.
type lineStream struct {
	to  *lineWriter
	buf []byte
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
		s.to.lineLocked(s.buf[:i])
		s.buf = s.buf[i+1:]
	}
}

// flush hands over lines that had no end. The streams must have been closed.
func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.streams {
		w.lineLocked(s.buf)
		s.buf = nil
	}
}

func (w *lineWriter) lineLocked(b []byte) {
	line := strings.TrimRight(strings.ToValidUTF8(string(b), "?"), " \t")
	if line == "" {
		return
	}
	if len(w.tail) == tailLines {
		w.tail = append(w.tail[:0], w.tail[1:]...)
	}
	w.tail = append(w.tail, line)
	if w.onLine != nil {
		w.onLine(line)
	}
}
