package serial

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/linetime"
)

// Log keeps the last bytes of a console in a file of bounded size. Each line begins with its time
// (package linetime). When the file is full, its newer half moves to the front. It is safe for
// concurrent use.
type Log struct {
	now    func() time.Time
	mu     sync.Mutex // guards the fields below
	f      *os.File
	size   int64
	max    int64
	within bool // a line has begun
	buf    []byte
}

// NewLog returns a Log. The Log owns f and lets it grow to max bytes. Existing content of f is
// kept.
func NewLog(f *os.File, max int64) (*Log, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &Log{now: time.Now, f: f, size: st.Size(), max: max}, nil
}

// Write appends p. If the file cannot be written (a full disk), output is lost but the guest never
// stops, so the error is only for tests.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.timedLocked(p)
	if l.size+int64(len(b)) > l.max {
		if err := l.dropOlderHalf(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.WriteAt(b, l.size)
	l.size += int64(n)
	return len(p), err
}

// timedLocked returns p with a time before each line.
func (l *Log) timedLocked(p []byte) []byte {
	l.buf = l.buf[:0]
	for _, c := range p {
		if !l.within {
			l.buf = linetime.AppendMark(l.buf, l.now())
		}
		l.buf, l.within = append(l.buf, linetime.Clean(c)), c != '\n'
	}
	return l.buf
}

func (l *Log) dropOlderHalf() error {
	keep := make([]byte, l.max/2)
	n, err := l.f.ReadAt(keep, max(0, l.size-int64(len(keep))))
	if err != nil && err != io.EOF {
		return err
	}
	keep = keep[:n]
	if _, whole, ok := bytes.Cut(keep, []byte("\n")); ok && len(whole) > len(keep)/2 { // a mark may be cut
		keep = whole
	}
	if _, err := l.f.WriteAt(keep, 0); err != nil {
		return err
	}
	l.size = int64(len(keep))
	return l.f.Truncate(l.size)
}

// Close closes the file.
func (l *Log) Close() error { return l.f.Close() }
