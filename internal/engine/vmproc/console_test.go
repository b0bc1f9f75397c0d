package vmproc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheLastWordsAreBounded(t *testing.T) {
	console := filepath.Join(t.TempDir(), "console.log")
	for name, c := range map[string]struct{ said, first string }{
		"few lines":      {"one\r\ntwo\x1b[0m\n", "one"},
		"many lines":     {numbered(100, ""), "line 70"},
		"wide lines":     {numbered(30, strings.Repeat("ä", 200)), "line 20"},
		"one wide line":  {strings.Repeat("ä", 10000) + "x", "ä"},
		"nothing at all": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(console, []byte(c.said), 0o600); err != nil {
				t.Fatal(err)
			}
			got := LastWords(console)
			if len(got) > lastBytes || strings.Count(got, "\n") >= lastLines || !strings.HasPrefix(got, c.first) || strings.ContainsAny(got, "\x1b\r") || strings.ToValidUTF8(got, "?") != got {
				t.Errorf("%d bytes, %d lines: %.300q, want it to begin with %q", len(got), strings.Count(got, "\n")+1, got, c.first)
			}
		})
	}
	if got := LastWords(filepath.Join(t.TempDir(), "none")); got != "" {
		t.Errorf("of no console: %q", got)
	}
}

func numbered(n int, more string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d %s\n", i, more)
	}
	return b.String()
}

func TestWhatAPanicIsCalled(t *testing.T) {
	console := filepath.Join(t.TempDir(), "console.log")
	const end = "[    7.2] Kernel panic - not syncing: Fatal exception\r\n[    7.3] Rebooting\r\n"
	for said, want := range map[string]string{
		"[    7.1] BUG: it was well\r\n": "",
		end:                              "Fatal exception",
		"[    7.1] BUG: unable to handle page fault\r\n[    7.1] Oops: 0002 [#1] SMP\r\n" + end:                    "Fatal exception, after BUG: unable to handle page fault",
		"[    7.1] BUG: soft lockup\n[    7.1] Oops: general protection fault, 0000 [#1]\n" + end + "BUG: later\n": "Fatal exception, after Oops: general protection fault, 0000 [#1]",
		"a program says BUG: 1\n" + end:                          "Fatal exception",
		"kernel BUG at " + strings.Repeat("x", 999) + "\n" + end: "Fatal exception, after kernel BUG at " + strings.Repeat("x", 186),
	} {
		if err := os.WriteFile(console, []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := panicLine(console); got != want {
			t.Errorf("%q is called %q, want %q", said, got, want)
		}
	}
}
