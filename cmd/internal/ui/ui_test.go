package ui

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestGuestTextCannotCommandTheTerminal(t *testing.T) {
	var out, errOut bytes.Buffer
	p := &Printer{Out: &out, Err: &errOut}
	evil := "a\x1b]0;title\x07b\x9bc\r\nd\te\xff\u202e"
	if err := p.Table([]string{"X"}, [][]string{{evil}}); err != nil {
		t.Fatal(err)
	}
	p.Failure(evil, evil)
	for _, text := range []string{out.String(), errOut.String()} {
		if strings.ContainsAny(text, "\x1b\x07\r\u009b") || !utf8.ValidString(text) {
			t.Errorf("got %q", text)
		}
	}
	if strings.Count(out.String(), "\n") != 2 {
		t.Errorf("a cell broke its row: %q", out.String())
	}
}

func TestWordsForNumbers(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 B"}, {Bytes(1023), "1023 B"}, {Bytes(1 << 10), "1 KiB"}, {Bytes(90 << 20), "90 MiB"},
		{Bytes(3 << 29), "1.5 GiB"}, {Bytes(20 << 30), "20 GiB"},
		{Millis(0.25), "0.2 ms"}, {Millis(42.4), "42 ms"}, {Millis(1500), "1.5 s"}, {Millis(65_000), "65 s"},
		{Age(now.Add(-59*time.Second), now), "59s"}, {Age(now.Add(-61*time.Second), now), "1m"},
		{Age(now.Add(-47*time.Hour), now), "47h"}, {Age(now.Add(-49*time.Hour), now), "2d"}, {Age(now.Add(time.Hour), now), "0s"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestProgressWithoutATerminal(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		var errOut bytes.Buffer
		p := (&Printer{Err: &errOut, Quiet: quiet}).Progress()
		p.Step("boot", -1)
		p.Step("boot", 0.5)
		p.Done("boot", "1.0 s")
		p.Done("boot", "again")
		p.Step("warm", 0) // never done: it failed
		p.End()
		want := "boot ...\nboot: 1.0 s\nwarm ...\n"
		if quiet {
			want = ""
		}
		if errOut.String() != want {
			t.Errorf("quiet %v: got %q", quiet, errOut.String())
		}
	}
}

func TestQuietTableIsBareNames(t *testing.T) {
	var out bytes.Buffer
	p := &Printer{Out: &out, Quiet: true}
	if err := p.Table([]string{"ID", "X"}, [][]string{{"a", "1"}, {"b", "2"}}); err != nil || out.String() != "a\nb\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}
