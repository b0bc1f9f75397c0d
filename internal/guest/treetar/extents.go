package treetar

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// extents reads a file in pieces, without its holes.
type extents struct {
	f      *os.File
	at     int64 // all data below it was read or is a hole
	dense  int64 // there is no hole up to this offset
	limit  int64 // size at the time of Look, data appended later is not read; 0 if unknown
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

// next reads a piece and returns its offset. done is set with the last piece, which ends at the end
// of the file and may be empty.
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
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // it became shorter, or reported no size
		e.done = true
		return at, n, nil
	case err != nil:
		return at, n, err
	case e.limit > 0 && e.at >= e.limit:
		e.done = true
	}
	return at, n, nil
}
