package vmproc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLastWordsOfACrash(t *testing.T) {
	dir := t.TempDir()
	trace := strings.Repeat("\nruntime.goexit({})\n\truntime/asm_amd64.s:1771 +0x1\n", 2000)
	for said, want := range map[string]string{
		"unexpected fault address 0x7f00\nfatal error: fault\n[signal SIGBUS: bus error]\n" + trace: "unexpected fault address 0x7f00",
		"a note\npanic: it is broken\n\ngoroutine 7 [running]:" + trace:                             "panic: it is broken",
		"panic: " + strings.Repeat("x", 999):                                                        "panic: " + strings.Repeat("x", 193),
		"one\ntwo\nthree\nno panic: here\n":                                                         "two\nthree\nno panic: here",
		"":                                                                                          "",
	} {
		if err := os.WriteFile(filepath.Join(dir, vmmLog), []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastWords(dir); got != want {
			t.Errorf("of %.60q: %q, want %q", said, got, want)
		}
	}
	if got := lastWords(t.TempDir()); got != "" {
		t.Errorf("without a log: %q", got)
	}
}
