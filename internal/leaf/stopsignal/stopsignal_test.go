package stopsignal_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/stopsignal"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int{
		"": 15, "SIGTERM": 15, "TERM": 15, "sigquit": 3, "Quit": 3, "9": 9, "1": 1, "64": 64, "015": 15, "SIGWINCH": 28,
		"SIGCLD": 17, "SIGPOLL": 29, "IOT": 6, "RTMIN": 34, "SIGRTMIN+3": 37, "rtmin+0": 34, "SIGRTMIN+30": 64,
		"SIGRTMAX": 64, "RTMAX-14": 50,
		"0": 0, "65": 0, "-9": 0, "+9": 0, "1e1": 0, " TERM": 0, "SIG": 0, "SIGSIGTERM": 0, "SIGFOO": 0, "RTMIN-1": 0,
		"RTMIN+": 0, "RTMIN+31": 0, "RTMAX+1": 0, "RTMAX-31": 0, "RTMIN+-1": 0, "RTMIN+3+3": 0, "9999999999": 0,
		"TERM\x00": 0, "$(reboot)": 0, "SIG9": 0, "٣": 0,
	} {
		got, err := stopsignal.Parse(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
}

// The table is the kernel's.
func TestNames(t *testing.T) {
	for n := 1; n <= 31; n++ {
		if got, want := stopsignal.Name(n), unix.SignalName(unix.Signal(n)); got != want {
			t.Errorf("signal %d: got %s, want %s", n, got, want)
		}
	}
}

// Each accepted text is a signal of Linux, and its name has the same number.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "SIGTERM", "quit", "9", "SIGRTMIN+3", "RTMAX-14", "0", "RTMIN+31", "SIGFOO"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := stopsignal.Parse(text)
		if err != nil {
			return
		}
		if n < 1 || n > stopsignal.Max || len(text) > stopsignal.MaxText || strings.ContainsRune(text, 0) {
			t.Fatalf("%q became %d", text, n)
		}
		if n >= 32 && n < 34 { // of the C library: numbers only
			return
		}
		if again, err := stopsignal.Parse(stopsignal.Name(n)); err != nil || again != n {
			t.Errorf("%d is named %s, which is %d, %v", n, stopsignal.Name(n), again, err)
		}
	})
}
