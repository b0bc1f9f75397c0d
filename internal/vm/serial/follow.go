package serial

import (
	"bytes"
	"io"
	"os"
)

// Follower reads the file of a Log as it grows, in another process than the
// Log's. When the Log drops its older half the Follower finds its place again
// by the last bytes that it read; what was dropped before it was read is lost.
type Follower struct {
	f    *os.File
	at   int64
	last []byte // what was read last, at most markBytes
}

// markBytes find a place again: a boot log's lines have times in them, so that
// so many bytes are there once.
const markBytes = 256

// NewFollower begins at the file's beginning. The file stays the caller's.
func NewFollower(f *os.File) *Follower { return &Follower{f: f} }

// Skip goes on before the last n lines.
func (f *Follower) Skip(n int) error {
	b, err := f.all()
	if err != nil {
		return err
	}
	at := len(bytes.TrimSuffix(b, []byte("\n")))
	for ; n > 0 && at >= 0; n-- {
		at = bytes.LastIndexByte(b[:at], '\n')
	}
	f.at = int64(min(at+1, len(b))) // without a newline at its end there is none to skip
	f.keep(b[:f.at])
	return nil
}

// Read reads what is new; io.EOF means that nothing is, for now.
func (f *Follower) Read(p []byte) (int, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	if st.Size() < f.at {
		if err := f.find(); err != nil {
			return 0, err
		}
	}
	n, err := f.f.ReadAt(p, f.at)
	f.at += int64(n)
	f.keep(p[:n])
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// find looks for where it was in a file that has lost its beginning.
func (f *Follower) find() error {
	b, err := f.all()
	if err != nil {
		return err
	}
	f.at = 0
	if i := bytes.LastIndex(b, f.last); i >= 0 {
		f.at = int64(i + len(f.last))
	}
	return nil
}

func (f *Follower) keep(b []byte) {
	f.last = append(f.last, b...)
	f.last = bytes.Clone(f.last[max(0, len(f.last)-markBytes):])
}

func (f *Follower) all() ([]byte, error) {
	st, err := f.f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f.f, 0, st.Size()))
}
