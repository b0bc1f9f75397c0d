package pagedigest

import (
	"encoding/binary"
	"io"
	"sync"
)

// bufferPages is how many hashes are written at once.
const bufferPages = 8 << 10

// Writer writes hashes in the order of the file. Flush ends it.
type Writer struct {
	to  io.Writer
	buf []byte
	err error // the first; nothing is written after it
}

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer {
	return &Writer{to: w, buf: make([]byte, 0, 8*bufferPages)}
}

// Data adds the pages of b; the last one may be cut short.
func (w *Writer) Data(b []byte) {
	for len(b) > 0 {
		n := min(len(b), PageSize)
		w.add(Hash(b[:n]))
		b = b[n:]
	}
}

// Zeros adds pages of zeros without a look at any.
func (w *Writer) Zeros(pages int64) {
	for left := pages; left > 0 && w.err == nil; {
		if len(w.buf) == cap(w.buf) && w.Flush() != nil {
			return
		}
		n := min(left, int64(cap(w.buf)-len(w.buf))/8, zeroPages)
		w.buf, left = append(w.buf, zeros()[:8*n]...), left-n
	}
}

// zeros are the hashes of many pages of zeros: disks are mostly these. They are made when the first are asked for: VMMs link this, and only tests ask.
func zeros() []byte {
	madeZeros.Do(func() {
		for at := 0; at < len(zeroHashes); at += 8 {
			binary.LittleEndian.PutUint64(zeroHashes[at:], Zero)
		}
	})
	return zeroHashes[:]
}

var (
	madeZeros  sync.Once
	zeroHashes [8 * zeroPages]byte
)

const zeroPages = 512

// Flush writes what is left and tells the first error.
func (w *Writer) Flush() error {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.to.Write(w.buf)
		w.buf = w.buf[:0]
	}
	return w.err
}

func (w *Writer) add(hash uint64) {
	if len(w.buf) == cap(w.buf) && w.Flush() != nil {
		return
	}
	w.buf = binary.LittleEndian.AppendUint64(w.buf, hash)
}
