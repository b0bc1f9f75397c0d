package initprogram_test

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/initprogram"
)

func TestIs(t *testing.T) {
	for line, want := range map[string]bool{
		"/sbin/init": true, "/lib/systemd/systemd": true, "/usr/lib/systemd/systemd --log-level=debug": true, "/init": true,
		"": false, "init": false, "/usr/bin/tini -- /sbin/init": false, "/app/init.sh": false, "/bin/sh /sbin/init": false,
		"/usr/bin/dumb-init x": false,
	} {
		if initprogram.Is(strings.Fields(line)) != want {
			t.Errorf("%q: want %v", line, want)
		}
	}
}

func TestCommands(t *testing.T) {
	for line, want := range map[string][2]string{
		"/sbin/init --a b": {initprogram.Runner + " /sbin/init --a b", initprogram.Runner + " --ready /sbin/init"},
		"/bin/sh -c x":     {"/bin/sh -c x", ""},
		"":                 {"", ""},
	} {
		args := strings.Fields(line)
		got := [2]string{strings.Join(initprogram.Command(args), " "), strings.Join(initprogram.Ready(args), " ")}
		if got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
