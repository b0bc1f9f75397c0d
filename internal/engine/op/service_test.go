package op

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// waits runs a guest's waiting program on this host, and returns its exit code.
func waits(t *testing.T, r sandbox.Ready, end string, limit time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	args := readinessOf(r).args(end)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, out)
	}
	return cmd.ProcessState.ExitCode()
}

func TestReadiness(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	log, failed, well := filepath.Join(dir, "log"), filepath.Join(dir, "failed"), filepath.Join(dir, "well")
	for path, text := range map[string]string{log: "x\n-it [is] up\n", failed: "1\n", well: "0\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		name string
		r    sandbox.Ready
		end  string
		want int
	}{
		{"a port that is listened on", sandbox.Ready{Port: port}, none, 0},
		{"a command that succeeds", sandbox.Ready{Command: "test -f " + log}, none, 0},
		{"a command with quotes", sandbox.Ready{Command: `test "a b" = 'a b'`}, none, 0},
		{"a text in a log", sandbox.Ready{LogFile: log, LogText: "-it [is] up"}, none, 0},
		{"a service that ended well is waited for", sandbox.Ready{LogFile: log, LogText: "up"}, well, 0},
		{"a port, and a service that failed", sandbox.Ready{Port: 1}, failed, serviceFailed},
		{"a text that is not there, and a service that failed", sandbox.Ready{LogFile: log, LogText: "i."}, failed, serviceFailed},
	} {
		if got := waits(t, c.r, c.end, time.Minute); got != c.want {
			t.Errorf("%s: exit %d, want %d", c.name, got, c.want)
		}
	}
	for name, r := range map[string]sandbox.Ready{
		"a port that is not": {Port: 1}, "a command that fails": {Command: "exit 3"}, "a log that is not there": {LogFile: none, LogText: "x"},
	} {
		if got := waits(t, r, well, time.Second); got != -1 { // killed
			t.Errorf("%s: exit %d", name, got)
		}
	}
}

func TestAServiceRunsOn(t *testing.T) {
	dir := t.TempDir()
	log, end, gate := filepath.Join(dir, "log"), filepath.Join(dir, "end"), filepath.Join(dir, "gate")
	line := "echo begun; until test -e " + gate + "; do sleep 0.02; done; echo ended >&2; exit 7"
	if out, err := exec.Command("sh", "-c", startScript, "sh", line, log, end).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	if got := waits(t, sandbox.Ready{LogFile: log, LogText: "begun"}, end, time.Minute); got != 0 {
		t.Errorf("exit %d", got)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := waits(t, sandbox.Ready{Port: 1}, end, time.Minute); got != serviceFailed {
		t.Errorf("its end is seen as %d", got)
	}
	if b, err := os.ReadFile(log); err != nil || string(b) != "begun\nended\n" {
		t.Errorf("its log is %q, %v", b, err)
	}
}

func TestWhatIsWaitedForIsSaid(t *testing.T) {
	for want, r := range map[string]sandbox.Ready{
		"port 5432 to be listened on":                  {Port: 5432},
		"this command to succeed: pg_isready":          {Command: "pg_isready"},
		`"up" in /tmp/forkd-start.log`:                 {LogText: "up"},
		`"ready to accept" in /var/log/postgresql.log`: {LogFile: "/var/log/postgresql.log", LogText: "ready to accept"},
	} {
		if got := readinessOf(r); got.what != want || !strings.HasSuffix(want, got.log) && r.LogText != "" {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
}

func TestWarmPrograms(t *testing.T) {
	for language, want := range map[string][]string{
		"command": {"sh", "-c", "x"}, "node": {"node", "-e", "x"}, "python": nil,
	} {
		if got := warmProgram(sandbox.WarmStep{Language: language, Code: "x"}); !slices.Equal(got, want) {
			t.Errorf("%s is %q", language, got)
		}
	}
	steps := []sandbox.WarmStep{{Language: "command"}, {Language: "python"}, {Language: "node"}, {Language: "python"}}
	if got := languages(steps); !slices.Equal(got, []string{"python"}) {
		t.Errorf("interpreters are %q", got)
	}
}
