package audit

import (
	"bufio"
	"errors"
	"io"
)

// piece is a part of a file: a line, or what is none.
type piece struct {
	raw   []byte // with its newline, if it has one; good until the next piece
	line  []byte // without it
	entry Entry
	whole bool // it is a line of the log, be it that its newline is not written yet
	end   bool // its newline is there
}

// scanner reads a file in pieces.
type scanner struct {
	r       *bufio.Reader
	partial bool // the last piece was too long to be a line, and goes on
}

func newScanner(r io.Reader) *scanner { return &scanner{r: bufio.NewReaderSize(r, MaxLine)} }

// next returns io.EOF at the file's end.
func (s *scanner) next() (piece, error) {
	raw, err := s.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		s.partial = true
		return piece{raw: raw}, nil
	case err == io.EOF && len(raw) == 0:
		return piece{}, io.EOF
	case err != nil && err != io.EOF:
		return piece{}, err
	}
	p := piece{raw: raw, line: raw, end: err == nil}
	if p.end {
		p.line = raw[:len(raw)-1]
	}
	if !s.partial {
		e, err := Decode(p.line)
		p.entry, p.whole = e, err == nil
	}
	s.partial = s.partial && !p.end
	return p, nil
}
