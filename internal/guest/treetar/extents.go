package treetar

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// extents reads a file piece by piece, without its holes.
type extents struct {
	f      *os.File
	at     int64 // what is below was read or is a hole
	dense  int64 // up to here there is no hole
	limit  int64 // the size when it was looked at: what grows behind it is not read; 0 if it tells none
	sparse bool  // it may have holes
	done   bool
}

func newExtents(f *os.File, st fs.FileInfo) *extents {
	e := &extents{f: f, limit: st.Size(), sparse: filled(st) < st.Size()}
	if !e.sparse {
		e.dense = e.limit
	}
	return e
}

// next reads a piece and returns where it is. done is set with the last one, whose end is the
// file's; it may be empty.
func (e *extents) next(buf []byte) (at int64, n int, err error) {
	if e.sparse && e.at >= e.dense {
		from, to, err := nextData(e.f, e.at, e.limit)
		if err != nil {
			return e.at, 0, err
		}
		e.at, e.dense = from, to
		if _, err := e.f.Seek(from, io.SeekStart); err != nil {
			return e.at, 0, err
		}
	}
	if e.limit > 0 {
		buf = buf[:min(int64(len(buf)), e.dense-e.at)]
	}
	at = e.at
	n, err = io.ReadFull(e.f, buf)
	e.at += int64(n)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // it became shorter, or told no size
		e.done = true
		return at, n, nil
	case err != nil:
		return at, n, err
	case e.limit > 0 && e.at >= e.limit:
		e.done = true
	}
	return at, n, nil
}
