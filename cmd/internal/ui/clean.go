package ui

import (
	"io"
	"unicode/utf8"
)

// CleanWriter passes on text after CleanLines. It holds back an incomplete character until the rest
// arrives, or until Flush.
type CleanWriter struct {
	W    io.Writer // receives the cleaned text
	rest []byte
}

func (c *CleanWriter) Write(p []byte) (int, error) {
	b := append(c.rest, p...)
	whole := len(b)
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if i := len(b) - back; utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				whole = i
			}
			break
		}
	}
	c.rest = append([]byte(nil), b[whole:]...)
	if _, err := io.WriteString(c.W, CleanLines(string(b[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the rest.
func (c *CleanWriter) Flush() error {
	_, err := io.WriteString(c.W, CleanLines(string(c.rest)))
	c.rest = nil
	return err
}
