package ociimage

import (
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/images/image"
)

func TestService(t *testing.T) {
	type ready = image.Ready
	check := func(test ...string) *Healthcheck { return &Healthcheck{Test: test} }
	for _, c := range []struct {
		name  string
		in    Config
		start string
		ready *ready
		err   string
	}{
		{name: "nothing to start", err: "neither an entrypoint nor a command"},
		{name: "systemd", in: Config{Entrypoint: []string{"/lib/systemd/systemd"}, Cmd: []string{"--system"}},
			start: "exec '/run/forkd/forkd-init' '/lib/systemd/systemd' '--system'",
			ready: &ready{Command: "'/run/forkd/forkd-init' '--ready' '/lib/systemd/systemd'", TimeoutSecs: 300}},
		{name: "systemd with a port", in: Config{Cmd: []string{"/sbin/init"}, ExposedPorts: []string{"22/tcp"}},
			start: "exec '/run/forkd/forkd-init' '/sbin/init'", ready: &ready{Port: 22}},
		{name: "no condition", in: Config{Cmd: []string{"top"}}, start: "exec 'top'"},
		{name: "both", in: Config{Entrypoint: []string{"/e", "it's"}, Cmd: []string{"$HOME", ""}}, start: `exec '/e' 'it'\''s' '$HOME' ''`},
		{name: "the lowest TCP port", in: Config{Cmd: []string{"s"}, ExposedPorts: []string{"443/tcp", "53/udp", "80/tcp", "8080"}},
			start: "exec 's'", ready: &ready{Port: 80}},
		{name: "strange ports", in: Config{Cmd: []string{"s"}, ExposedPorts: []string{"0/tcp", "70000/tcp", "-1", "x", "53/udp"}}, start: "exec 's'"},
		{name: "a shell's check comes before ports", in: Config{Cmd: []string{"s"}, ExposedPorts: []string{"80/tcp"},
			Healthcheck: check("CMD-SHELL", "test -f /ready || exit 1")}, start: "exec 's'", ready: &ready{Command: "test -f /ready || exit 1", TimeoutSecs: 90}},
		{name: "a program's check", in: Config{Cmd: []string{"s"}, Healthcheck: &Healthcheck{Test: []string{"CMD", "/check", "a b"},
			Interval: time.Second, Retries: 5, StartPeriod: 2 * time.Minute}}, start: "exec 's'", ready: &ready{Command: "'/check' 'a b'", TimeoutSecs: 125}},
		{name: "a check without end", in: Config{Cmd: []string{"s"}, Healthcheck: &Healthcheck{Test: []string{"CMD", "c"}, Interval: time.Hour}},
			start: "exec 's'", ready: &ready{Command: "'c'", TimeoutSecs: 600}},
		{name: "no check", in: Config{Cmd: []string{"s"}, Healthcheck: check("NONE")}, start: "exec 's'"},
		{name: "below a millisecond", in: Config{Cmd: []string{"s"}, Healthcheck: &Healthcheck{Test: []string{"CMD", "c"},
			Interval: time.Microsecond}}, err: "interval of 1µs: want 1ms to 24h"},
		{name: "another form", in: Config{Cmd: []string{"s"}, Healthcheck: check("HTTP", "/")}, err: "health check"},
		{name: "a check without a command", in: Config{Cmd: []string{"s"}, Healthcheck: check("CMD")}, err: "health check"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := Image{Config: c.in}
			start, got, err := i.Service()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || start != c.start || !reflect.DeepEqual(got, c.ready) {
				t.Errorf("got %q, %+v, %v, want %q, %+v", start, got, err, c.start, c.ready)
			}
		})
	}
}

// A shell gets the arguments back as they were.
func FuzzCommandLine(f *testing.F) {
	f.Add("it's", "$(id)")
	f.Add("\n\\", "")
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.ContainsRune(a+b, 0) {
			t.Skip("no argument has a zero byte")
		}
		out, err := exec.Command("sh", "-c", "printf '%s|' "+commandLine([]string{a, b})).Output()
		if err != nil || string(out) != a+"|"+b+"|" {
			t.Errorf("%q and %q became %q, %v", a, b, out, err)
		}
	})
}
