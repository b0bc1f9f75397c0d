package services

import (
	"bytes"
	"strings"
	"testing"
)

func TestALogKeepsItsEnd(t *testing.T) {
	for _, size := range []int{1, 3, 7, 10, 11, 25} { // of each write
		l := newLog(10)
		var all []byte
		for i := range 12 {
			p := bytes.Repeat([]byte{byte('a' + i)}, size)
			all = append(all, p...)
			if n, err := l.Write(p); n != size || err != nil {
				t.Fatal(n, err)
			}
			got := make([]byte, 20)
			n, start, _ := l.read(got, 0)
			if want := all[max(0, len(all)-10):]; string(got[:n]) != string(want) || start != int64(len(all)-n) {
				t.Fatalf("writes of %d: %q from %d, want %q", size, got[:n], start, want)
			}
		}
	}
}

func TestTheLastLinesOfALog(t *testing.T) {
	l := newLog(1 << 10)
	_, _ = l.Write([]byte("one\ntwo\nthree\n"))
	for lines, want := range map[int]string{0: "", 1: "three\n", 2: "two\nthree\n", 9: "one\ntwo\nthree\n"} {
		var b strings.Builder
		if err := (&Reader{log: l, at: l.tail(lines)}).Copy(&b); err != nil || b.String() != want {
			t.Errorf("%d lines: %q, %v", lines, b.String(), err)
		}
	}
}

func TestAGapInALogIsShown(t *testing.T) {
	l := newLog(4)
	_, _ = l.Write([]byte("0123456789"))
	var b strings.Builder
	if err := (&Reader{log: l}).Copy(&b); err != nil || b.String() != "[forkd: 6 bytes of this log are gone]\n6789" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
