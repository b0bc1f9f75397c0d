package build

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Newlines must cost the same as other bytes. A copy of the rest for each newline made 64 KiB cost
// a hundred times their size.
func TestNewlinesAllocateNothing(t *testing.T) {
	chunk := bytes.Repeat([]byte("\n"), 64<<10)
	l := lines{to: func(string) {}}
	if n := testing.AllocsPerRun(1, func() { l.add(chunk) }); n > 10 {
		t.Errorf("%v allocations for %d newlines", n, len(chunk))
	}
}

func TestLinesAreClippedAndNotLost(t *testing.T) {
	var got []string
	l := lines{to: func(s string) { got = append(got, s) }}
	for _, c := range []string{"a\nb", "c\r\n", "\n\nd"} {
		l.add([]byte(c))
	}
	l.end()
	if want := []string{"a", "bc", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	got = nil
	l.add([]byte(strings.Repeat("x", 10*maxLine)))
	l.end()
	if slices.ContainsFunc(got, func(s string) bool { return len(s) > maxLine }) || len(strings.Join(got, "")) != 10*maxLine {
		t.Errorf("a long line became %d lines", len(got))
	}
}

func TestTheLogIsBounded(t *testing.T) {
	l := &log{now: time.Now}
	for range 2 * maxEntries {
		l.output("1", "x")
	}
	for i := range 2 * maxEntries {
		l.say(LevelInfo, "2", fmt.Sprint(i))
	}
	if n := len(l.from(0, 10*maxEntries)); n > maxEntries {
		t.Errorf("%d entries", n)
	}
	l = &log{now: time.Now}
	for range 2 * maxLog / maxLine {
		l.say(LevelError, "1", strings.Repeat("x", maxLine))
	}
	if l.bytes > maxLog+keptForEnd*maxLine {
		t.Errorf("%d bytes", l.bytes)
	}
	if got := l.of("1", 3); len(got) != 3 {
		t.Errorf("%d last entries, want 3", len(got))
	}
}
