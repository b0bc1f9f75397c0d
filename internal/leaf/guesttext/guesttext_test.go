package guesttext

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

func TestWordsBecomeText(t *testing.T) {
	for _, c := range []struct{ name, words, line, lines string }{
		{"plain", "no such file", "no such file", "no such file"},
		{"other scripts", "Übung 漢字 🂡", "Übung 漢字 🂡", "Übung 漢字 🂡"},
		{"lines", "a\n\tb", `a\n\tb`, "a\n\tb"},
		{"a terminal's commands", "\x1b[31mred\x00", `\x1b[31mred\x00`, `\x1b[31mred\x00`},
		{"direction of text", "a\u202eb\u2066", `a\u202eb\u2066`, `a\u202eb\u2066`},
		{"no UTF-8", "a\xffb", `a\xffb`, `a\xffb`},
		{"empty", "", "", ""},
	} {
		if got := Of(c.words).String(); got != c.line {
			t.Errorf("%s: on a line: %q, want %q", c.name, got, c.line)
		}
		if got := Lines([]byte(c.words)).String(); got != c.lines {
			t.Errorf("%s: in lines: %q, want %q", c.name, got, c.lines)
		}
	}
	if got := Tail(strings.Repeat("\xff", MaxLines) + "end").String(); !strings.HasSuffix(got, `\xffend`) || len(got) > MaxLines+3 {
		t.Errorf("the escaped tail has %d bytes, and ends in %q", len(got), got[len(got)-4:])
	}
	if got := Tail(strings.Repeat("a", MaxLines) + "end").String(); !strings.HasSuffix(got, "aend") || len(got) > MaxLines+3 {
		t.Errorf("the tail has %d bytes, and ends in %q", len(got), got[len(got)-4:])
	}
}

func TestErrorsKeepTheirCauses(t *testing.T) {
	plain := errors.New("plain")
	if Error(plain) != plain || Error(nil) != nil {
		t.Error("an error with a good text is another one")
	}
	long := Error(fmt.Errorf("%s: %w", strings.Repeat("\x1b", 8<<20), fs.ErrNotExist))
	if n := len(long.Error()); n > MaxLines+len(ellipsis.Mark) || !errors.Is(long, fs.ErrNotExist) {
		t.Errorf("got %d bytes, %v", n, errors.Unwrap(long) != nil)
	}
}

type many struct{ S []string }

func TestTheLogIsClipped(t *testing.T) {
	huge := strings.Repeat("\x1b\u202e", 1<<20)
	var out bytes.Buffer
	log := slog.New(Handler(slog.NewTextHandler(&out, nil))).With("with", huge).WithGroup("g")
	log.Error(huge, "text", huge, "err", errors.New(huge), "any", many{[]string{huge}}, slog.Group("in", "text", huge),
		"n", 7, "small", many{[]string{"a"}})
	if out.Len() > 8*2*MaxAttr || strings.ContainsAny(out.String(), "\x1b\u202e") {
		t.Errorf("the line has %d bytes", out.Len())
	}
	if !strings.Contains(out.String(), "g.n=7 g.small={S:[a]}") {
		t.Error("short attributes are changed")
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\n\x1b\xff\u202e漢", 5)
	f.Add(strings.Repeat("é", 100), 9)
	f.Fuzz(func(t *testing.T, words string, limit int) {
		limit = max(0, limit%5000)
		for _, lines := range []bool{false, true} {
			got := clip(words, limit, lines)
			if len(got) > limit+len(ellipsis.Mark) || !utf8.ValidString(got) {
				t.Fatalf("%d bytes: %q", len(got), got)
			}
			for _, r := range got {
				if !unicode.IsPrint(r) && (!lines || r != '\n' && r != '\t') {
					t.Fatalf("%q has %q", got, r)
				}
			}
			if again := clip(got, len(got), lines); again != got {
				t.Fatalf("%q becomes %q", got, again)
			}
		}
	})
}
