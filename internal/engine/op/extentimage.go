package op

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
)

// ExtentImage reads the memory or disk a guest sees if a VMM maps the extents. Ranges without an
// extent, or with an extent that has no file, read as zeros.
type ExtentImage []extent.Extent

// ReadAt implements io.ReaderAt.
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

// next returns the first offset from at on that is not in a hole, or size.
func (m ExtentImage) next(at, size int64) (int64, error) {
	for e := range extent.Within(m, at, size) {
		if e.Zero() {
			continue
		}
		data, err := unix.Seek(int(e.File.Fd()), e.FileOffset, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO): // only a hole from there on
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
