package op

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
)

// ExtentImage reads what a VMM that maps the extents shows its guest: zero
// where there is none or where one has no file.
type ExtentImage []extent.Extent

func (m ExtentImage) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	for e := range extent.Within(m, off, off+int64(len(p))) {
		if e.Zero() {
			continue
		}
		part := p[e.Offset-off : e.End()-off]
		if n, err := e.File.ReadAt(part, e.FileOffset); n < len(part) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, fmt.Errorf("read %d bytes at %d of %s: %w", len(part), e.Offset, e.File.Name(), err)
		}
	}
	return len(p), nil
}

// next is the first offset from at on that is in no hole, or size.
func (m ExtentImage) next(at, size int64) (int64, error) {
	for e := range extent.Within(m, at, size) {
		if e.Zero() {
			continue
		}
		data, err := unix.Seek(int(e.File.Fd()), e.FileOffset, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO): // nothing but a hole from there on
			continue
		case err != nil:
			return 0, fmt.Errorf("find data in %s: %w", e.File.Name(), err)
		}
		if first := e.Offset + data - e.FileOffset; first < e.End() {
			return first, nil
		}
	}
	return size, nil
}
