package pagedigest

import (
	"encoding/binary"
	"io"
	"sync"
)

// bufferPages is the number of hashes per write.
const bufferPages = 8 << 10

// Writer writes hashes in the order of the file. Call Flush at the end.
type Writer struct {
	to  io.Writer
	buf []byte
	err error // first error; no more is written after it
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer {
	return &Writer{to: w, buf: make([]byte, 0, 8*bufferPages)}
}

// Data adds the pages of b. The last one may be short.
func (w *Writer) Data(b []byte) {
	for len(b) > 0 {
		n := min(len(b), PageSize)
		w.add(Hash(b[:n]))
		b = b[n:]
	}
}

// Zeros adds pages of zeros without hashing them.
func (w *Writer) Zeros(pages int64) {
	for left := pages; left > 0 && w.err == nil; {
		if len(w.buf) == cap(w.buf) && w.Flush() != nil {
			return
		}
		n := min(left, int64(cap(w.buf)-len(w.buf))/8, zeroPages)
		w.buf, left = append(w.buf, zeros()[:8*n]...), left-n
	}
}

// zeros returns the hashes of many zero pages, because disks consist mostly of them. They are computed on first
// use: VMMs link this package, but only tests use it.
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

// Flush writes the remaining hashes and returns the first error.
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
