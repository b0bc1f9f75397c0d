package linetime

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

var (
	early = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	later = early.Add(time.Hour)
)

func log() []byte {
	b := []byte("cut off\n")
	b = append(AppendMark(b, early), "one\n"...)
	b = append(AppendMark(b, later), "\n"...)
	return append(AppendMark(b, later), "two, not ended"...)
}

func TestViews(t *testing.T) {
	const e, l = "2026-01-02T03:04:05.678Z ", "2026-01-02T04:04:05.678Z "
	for name, c := range map[string]struct {
		v    View
		text []byte
		want string
	}{
		"plain":                 {View{}, log(), "cut off\none\n\ntwo, not ended"},
		"times":                 {View{Times: true}, log(), "- cut off\n" + e + "one\n" + l + "\n" + l + "two, not ended"},
		"since":                 {View{Since: later}, log(), "cut off\n\ntwo, not ended"},
		"times since":           {View{Times: true, Since: later}, log(), "- cut off\n" + l + "\n" + l + "two, not ended"},
		"an old log":            {View{Since: later}, []byte("a\n\x1eb\n\x1e0000000"), "a\n\x1eb\n"},
		"a line without an end": {View{}, append([]byte("a"), AppendMark(nil, early)...), "a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 3, 1000} {
				v, got := c.v, []byte(nil)
				for rest := c.text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
					got = v.Append(got, rest[:min(size, len(rest))])
				}
				if string(got) != c.want {
					t.Errorf("in pieces of %d: %q, want %q", size, got, c.want)
				}
			}
		})
	}
}

func TestALineIsCut(t *testing.T) {
	if at, text, ok := Cut(append(AppendMark(nil, later), "x"...)); !ok || !at.Equal(later) || string(text) != "x" {
		t.Errorf("%s, %q, %v", at, text, ok)
	}
	for _, s := range []string{"", "x", "\x1e0", "\x1e00\x010000x"} {
		if at, text, ok := Cut([]byte(s)); ok || !at.IsZero() || string(text) != s {
			t.Errorf("%q: %s, %q, %v", s, at, text, ok)
		}
	}
}

func TestPlainKeepsWhatIsNoMark(t *testing.T) {
	for _, s := range []string{"", "\x1e", "a\x1e00", "\x1e\x1e\n", strings.Repeat("\x1e0", 9)} {
		if got := Plain([]byte(s)); string(got) != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}

func FuzzView(f *testing.F) {
	f.Add(log(), 3)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		at = max(0, min(at, len(text)))
		var whole, parts View
		a := whole.Append(nil, text)
		b := parts.Append(parts.Append(nil, text[:at]), text[at:])
		if !bytes.Equal(a, b) {
			t.Errorf("%q, in parts %q", a, b)
		}
	})
}
