// Package guesttext converts bytes from a guest to text for people, in errors, events, logs and audit lines. The
// text is limited to a number of bytes and valid UTF-8; control characters and characters that change the
// direction of text are escaped. Every host-side package that reads a guest's text may call it. It is not for the
// output of programs: that is data, and the caller has to limit it. Beware: fmt.Errorf copies its arguments, so a
// guest's text must be converted before it becomes part of an error. A test in test/arch finds calls without the
// conversion.
package guesttext

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Limits in bytes, without the mark of a cut.
const (
	Max      = 1024 // of a Text with one line
	MaxLines = 4096 // of a Text with several lines, such as the end of a program's output
)

// maxEscaped is the largest growth by escaping: an invalid UTF-8 byte becomes four bytes.
const maxEscaped = 4

// Text is text that is safe to display. The zero value is empty.
type Text struct{ text string }

func (t Text) String() string { return t.text }

// Of returns a guest's text on one line.
func Of[T ~string | ~[]byte](words T) Text { return Text{clip(words, Max, false)} }

// Lines returns a guest's text with newlines and tabs.
func Lines[T ~string | ~[]byte](words T) Text { return Text{clip(words, MaxLines, true)} }

// Tail returns the end of a guest's text with newlines and tabs.
func Tail[T ~string | ~[]byte](words T) Text {
	over := max(0, len(words)-MaxLines)
	text := clip(words[over:], maxEscaped*MaxLines, true)
	if cut := len(text) - MaxLines; cut > 0 {
		for !utf8.RuneStart(text[cut]) {
			cut++
		}
		over, text = 1, text[cut:]
	}
	if over > 0 {
		text = ellipsis.Mark + text
	}
	return Text{text}
}

// Clip returns text on one line, with at most limit bytes and the mark of a cut.
func Clip(words string, limit int) string { return clip(words, limit, false) }

// ClipLines is Clip with newlines and tabs.
func ClipLines(words string, limit int) string { return clip(words, limit, true) }

// Error returns an error with the causes of err and text that is safe to display. If err's text is safe already,
// it returns err.
func Error(err error) error {
	if err == nil {
		return nil
	}
	said := err.Error()
	if text := clip(said, MaxLines, true); text != said {
		return &guestError{text, err}
	}
	return err
}

// New returns an error with a guest's text.
func New[T ~string | ~[]byte](words T) error { return errors.New(Lines(words).text) }

// guestError has the causes of another error, but a different text.
type guestError struct {
	text  string
	cause error
}

func (e *guestError) Error() string { return e.text }
func (e *guestError) Unwrap() error { return e.cause }

// clip converts the beginning of words to text.
func clip[T ~string | ~[]byte](words T, limit int, lines bool) string {
	s := string(words[:min(len(words), limit+utf8.UTFMax)])
	if len(s) <= limit && isPlain(s, lines) {
		return s
	}
	var b strings.Builder
	for at := 0; at < len(s); {
		r, n := utf8.DecodeRuneInString(s[at:])
		piece := s[at : at+n]
		switch {
		case r == utf8.RuneError && n == 1:
			piece = `\x` + hex2(s[at])
		case !isShown(r, lines):
			piece = escape(r)
		}
		if b.Len()+len(piece) > limit {
			return b.String() + ellipsis.Mark
		}
		b.WriteString(piece)
		at += n
	}
	return b.String()
}

func isPlain(s string, lines bool) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !isShown(r, lines) {
			return false
		}
	}
	return true
}

// isShown reports whether a character is displayed unchanged. Format characters, such as the ones that change the
// direction of text, are not printable.
func isShown(r rune, lines bool) bool {
	return unicode.IsPrint(r) || lines && (r == '\n' || r == '\t')
}

// escape returns a character in Go's escaped form.
func escape(r rune) string {
	quoted := strconv.QuoteRuneToASCII(r)
	return quoted[1 : len(quoted)-1]
}

func hex2(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}
