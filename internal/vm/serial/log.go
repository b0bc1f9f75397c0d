package serial

import (
	"io"
	"os"
	"sync"
)

// Log keeps the last bytes of a console in a file of bounded size. When the file is full, its newer
// half moves to the front. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	f    *os.File
	size int64
	max  int64
}

// NewLog returns a Log. The Log owns f and lets it grow to max bytes. Existing content of f is
// kept.
func NewLog(f *os.File, max int64) (*Log, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &Log{f: f, size: st.Size(), max: max}, nil
}

// Write appends p. If the file cannot be written (a full disk), output is lost but the guest never
// stops, so the error is only for tests.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > l.max {
		if err := l.dropOlderHalf(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.WriteAt(p, l.size)
	l.size += int64(n)
	return n, err
}

func (l *Log) dropOlderHalf() error {
	keep := make([]byte, l.max/2)
	n, err := l.f.ReadAt(keep, max(0, l.size-int64(len(keep))))
	if err != nil && err != io.EOF {
		return err
	}
	if _, err := l.f.WriteAt(keep[:n], 0); err != nil {
		return err
	}
	l.size = int64(n)
	return l.f.Truncate(l.size)
}

// Close closes the file.
func (l *Log) Close() error { return l.f.Close() }
