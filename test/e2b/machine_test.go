package e2b

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/test/harness"
)

// restarts stops and starts a machine with a running sandbox: it is paused with the machine, and
// resumes in it.
func restarts(t *testing.T, m *harness.Machine) {
	id := strings.TrimSpace(string(m.Forkd(t, "-q", "fork", "base")))
	m.Forkd(t, "eval", id, "x = 41")
	m.Forkd(t, "exec", id, "--", "sh", "-c", "echo kept > /tmp/kept; sleep 1000 > /dev/null 2>&1 & echo $! > /tmp/pid")
	local(t, "machine", "stop", "--name", m.Name, "--pause")
	local(t, "machine", "start", "--name", m.Name, "--memory", "4096")
	if got := string(m.Forkd(t, "ps")); !strings.Contains(got, id) || !strings.Contains(got, "paused") {
		t.Fatalf("after the restart ps shows\n%s", got)
	}
	m.Forkd(t, "resume", id)
	if got := string(m.Forkd(t, "eval", id, "x + 1")); got != "42\n" {
		t.Errorf("x + 1 is %q", got)
	}
	m.Forkd(t, "exec", id, "--", "sh", "-c", "grep kept /tmp/kept && kill $(cat /tmp/pid)")
	m.Forkd(t, "kill", id)
}

// kills kills the machine's agent and its daemon, and then uses everything: the sandbox that ran, new
// ones, and commands in the machine.
func kills(t *testing.T, m *harness.Machine) {
	id := strings.TrimSpace(string(m.Forkd(t, "-q", "fork", "base")))
	m.Forkd(t, "eval", id, "x = 41")
	forkd := func(args ...string) ([]byte, error) {
		return exec.Command(filepath.Join("..", "..", "bin", "forkd"), args...).CombinedOutput()
	}
	for range 2 {
		_, _ = forkd("machine", "exec", "--name", m.Name, "--", "sh", "-c", "kill -9 $(pidof forkd-agent)") // its own
		eventually(t, func() ([]byte, error) {
			return forkd("machine", "exec", "--name", m.Name, "--", "sh", "-c",
				"for p in $(pidof forkd); do [ $p = 1 ] || kill -9 $p; done")
		})
		eventually(t, func() ([]byte, error) { return forkd("--url", m.URL, "--token", m.Token, "ps") })
		if got := string(m.Forkd(t, "eval", id, "x + 1")); got != "42\n" {
			t.Errorf("x + 1 is %q", got)
		}
	}
	other := strings.TrimSpace(string(m.Forkd(t, "-q", "fork", "base")))
	m.Forkd(t, "exec", other, "--", "true")
	m.Forkd(t, "branch", id, "--tag", "after-kills")
	m.Forkd(t, "kill", id, other)
	m.Forkd(t, "snapshot", "rm", "after-kills")
}

// eventually repeats a command until it succeeds: the machine starts its agent and its daemon again.
func eventually(t *testing.T, command func() ([]byte, error)) {
	t.Helper()
	for end := time.Now().Add(harness.Patience()); ; time.Sleep(100 * time.Millisecond) {
		out, err := command()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// local runs a command of the CLI on this host.
func local(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command(filepath.Join("..", "..", "bin", "forkd"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("forkd %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
