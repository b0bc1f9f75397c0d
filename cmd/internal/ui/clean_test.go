package ui

import (
	"bytes"
	"testing"
)

func TestTextInPiecesIsCleanedAsAWhole(t *testing.T) {
	text := []byte("grün \x1b[31mrot\x1b[0m € 🂡\r\nund\xff mehr\xe2\x82")
	for size := 1; size < len(text); size++ {
		var out bytes.Buffer
		w := &CleanWriter{W: &out}
		for at := 0; at < len(text); at += size {
			piece := text[at:min(at+size, len(text))]
			if n, err := w.Write(piece); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), CleanLines(string(text)); got != want {
			t.Errorf("in pieces of %d: %q, want %q", size, got, want)
		}
	}
}
