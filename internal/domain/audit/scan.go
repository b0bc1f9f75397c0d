package audit

import (
	"bufio"
	"errors"
	"io"
)

// piece is a part of a file: a line or other text.
type piece struct {
	raw   []byte // with its newline, if any; valid until the next piece
	line  []byte // without its newline
	entry Entry
	whole bool // it is a line of the log, with or without its newline
	end   bool // the newline is present
}

// scanner reads a file in pieces.
type scanner struct {
	r       *bufio.Reader
	partial bool // the last piece was too long for a line, and continues
}

func newScanner(r io.Reader) *scanner { return &scanner{r: bufio.NewReaderSize(r, MaxLine)} }

// next returns the next piece. At the file's end it returns io.EOF.
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
