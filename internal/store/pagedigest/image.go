package pagedigest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// longHole is the length in bytes from which a hole is taken for zeros without reading it. Shorter holes are
// read, which reveals an image with wrong holes.
const longHole = 1 << 20

// Image adds the pages of an image of size bytes. next returns the first offset from at on that may have non-zero
// content, or size. If that is far away, the bytes before it are not read. next may be nil.
func (w *Writer) Image(image io.ReaderAt, size int64, next func(at int64) (int64, error)) error {
	buf := make([]byte, 64*PageSize)
	for at := int64(0); at < size && w.err == nil; {
		data := at
		if next != nil {
			var err error
			if data, err = next(at); err != nil {
				return fmt.Errorf("find data from %d on: %w", at, err)
			}
		}
		if data >= size && size-at >= longHole {
			w.Zeros(Pages(size - at))
			break
		}
		if data-at >= longHole {
			w.Zeros((data - at) / PageSize)
			at = data / PageSize * PageSize
		}
		b := buf[:min(int64(len(buf)), size-at)]
		if n, err := image.ReadAt(b, at); n < len(b) && err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read %d bytes at %d: %w", len(b), at, err)
		}
		w.Data(b)
		at += int64(len(b))
	}
	return w.err
}

// Of returns the hashes of an image, see Writer.Image.
func Of(image io.ReaderAt, size int64, next func(at int64) (int64, error)) ([]uint64, error) {
	var sink hashes
	w := NewWriter(&sink)
	if err := w.Image(image, size, next); err != nil {
		return nil, err
	}
	return sink, w.Flush()
}

// hashes collects the output of a Writer.
type hashes []uint64

func (h *hashes) Write(b []byte) (int, error) {
	*h = slices.Grow(*h, len(b)/8)
	for at := 0; at < len(b); at += 8 {
		*h = append(*h, binary.LittleEndian.Uint64(b[at:]))
	}
	return len(b), nil
}
