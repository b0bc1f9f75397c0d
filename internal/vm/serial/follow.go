package serial

import (
	"bytes"
	"io"
	"os"
)

// Follower reads the file of a Log as it grows, in another process than the Log's. When the Log
// drops its older half, the Follower finds its place again by the last bytes it read. Bytes dropped
// before it read them are lost.
type Follower struct {
	f    *os.File
	at   int64
	last []byte // the last bytes read, at most markBytes
}

// markBytes is the number of bytes by which a place is found again. The lines of a boot log contain
// times, so a string this long occurs only once.
const markBytes = 256

// NewFollower returns a Follower at the file's beginning. The file stays the caller's.
func NewFollower(f *os.File) *Follower { return &Follower{f: f} }

// Skip moves to the last n lines.
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

// Read reads new bytes. It returns io.EOF if there are no new bytes yet.
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

// find finds the previous position in a file after the loss of its beginning.
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
