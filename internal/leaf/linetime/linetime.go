// Package linetime stores the time of each line in a log of lines: a mark of a few bytes stands
// before the line. So times move, and are dropped, together with their lines, and are bounded with
// them. The log's writer sets the marks, and a View removes them for readers. Beware: text from a
// guest must pass Clean first, so that it cannot contain marks.
package linetime

import (
	"bytes"
	"time"
)

// Size is the size of a mark in bytes: Byte and the time.
const Size = 8

// Byte begins a mark: the record separator of ASCII.
const Byte = 0x1e

// digit0 is the first of 64 consecutive printable characters, the digits of a time.
const digit0 = '0'

// Stamp is the form of a line's time for readers, in UTC. Lines without a mark have Unknown.
const (
	Stamp   = "2006-01-02T15:04:05.000Z"
	Unknown = "-"
)

// AppendMark appends a mark with a time from 1970 to 2109, in milliseconds.
func AppendMark(dst []byte, t time.Time) []byte {
	dst = append(dst, Byte)
	for shift := 6 * (Size - 2); shift >= 0; shift -= 6 {
		dst = append(dst, digit0+byte(t.UnixMilli()>>shift&63))
	}
	return dst
}

// Clean replaces a byte of a guest's text that could begin a mark.
func Clean(c byte) byte {
	if c == Byte {
		return '?'
	}
	return c
}

// Cut returns the time of a line and the line without its mark. ok is false for a line without one.
func Cut(line []byte) (t time.Time, text []byte, ok bool) {
	if len(line) < Size || line[0] != Byte {
		return t, line, false
	}
	if t, ok, _ = timeOf(line); !ok {
		return t, line, false
	}
	return t, line[Size:], true
}

// timeOf reads the mark at the beginning of text. cut means that it may continue after text's end.
func timeOf(text []byte) (t time.Time, ok, cut bool) {
	var ms int64
	for i := 1; i < Size; i++ {
		switch {
		case i == len(text):
			return t, false, true
		case text[i] < digit0 || text[i] > digit0+63:
			return t, false, false
		}
		ms = ms<<6 | int64(text[i]-digit0)
	}
	return time.UnixMilli(ms).UTC(), true, false
}

// View removes the marks of a log. Its zero value shows all lines without times.
type View struct {
	Times  bool      // show the time before each line
	Since  time.Time // omit lines with an earlier time; lines of an unknown time are shown
	within bool      // a line has begun
	hidden bool      // the current line is omitted
	held   []byte    // beginning of a mark
}

// Append appends the visible part of the log's next bytes to dst. The bytes may end anywhere.
func (v *View) Append(dst, text []byte) []byte {
	text, v.held = append(v.held, text...), nil
	for len(text) > 0 {
		if text[0] == Byte {
			t, ok, cut := timeOf(text)
			if cut {
				v.held = bytes.Clone(text)
				return dst
			}
			if ok {
				dst, text = v.begin(dst, t), text[Size:]
				continue
			}
		}
		if !v.within {
			dst = v.begin(dst, time.Time{})
		}
		n := endOfPart(text)
		if !v.hidden {
			dst = append(dst, text[:n]...)
		}
		v.within, text = text[n-1] != '\n', text[n:]
	}
	return dst
}

// endOfPart returns the length of text up to the end of the line, or up to the next mark.
func endOfPart(text []byte) int {
	n := bytes.IndexByte(text, '\n') + 1
	if n == 0 {
		n = len(text)
	}
	if mark := bytes.IndexByte(text[1:n], Byte); mark >= 0 {
		return mark + 1
	}
	return n
}

// begin begins a line. A log that has lost bytes may lack the end of the line before.
func (v *View) begin(dst []byte, t time.Time) []byte {
	if v.within && !v.hidden {
		dst = append(dst, '\n')
	}
	v.within, v.hidden = true, !t.IsZero() && t.Before(v.Since)
	switch {
	case v.hidden || !v.Times:
		return dst
	case t.IsZero():
		return append(dst, Unknown+" "...)
	}
	return append(t.AppendFormat(dst, Stamp), ' ')
}

// Plain returns a log's text without marks.
func Plain(text []byte) []byte {
	var v View
	out := v.Append(nil, text)
	return append(out, v.held...)
}
