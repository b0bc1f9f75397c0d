package containers

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/test/harness"
)

// stopSignals ends `forkd run` by SIGTERM. The program gets the image's stop signal, or the given one, and SIGKILL
// after the time-out.
func stopSignals(t *testing.T, m *harness.Machine) {
	for _, row := range []struct {
		args []string
		out  string
		code int
	}{
		{nil, "ends by user defined signal 1\n", 42},
		{[]string{"--stop-signal", "INT"}, "ends by interrupt\n", 42},
		{[]string{"--stop-timeout", "2s", image, "--", "/program", "deaf"}, "", 137},
		{[]string{"--stop-signal", "SIGTERM", image, "--", "/program", "serve"}, "ends by terminated\n", 42},
	} {
		args := row.args
		if len(args) < 3 {
			args = append(args, image)
		}
		out, code := runAndStop(t, m, args...)
		if out != row.out || code != row.code {
			t.Errorf("run %q: printed %q, exit code %d; want %q, %d", args, out, code, row.out, row.code)
		}
	}
}

// runAndStop runs a server by `forkd run` until it serves, sends SIGTERM to the command, and returns the rest of its
// output and its exit code.
func runAndStop(t *testing.T, m *harness.Machine, args ...string) (string, int) {
	t.Helper()
	all := append([]string{"--url", m.URL, "--token", m.Token, "run"}, args...)
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", "forkd"), all...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(stdout)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("run %q ended before its program served: %v: %s", args, cmd.Wait(), errs.String())
		}
		if line == "serving\n" || strings.Contains(line, systemdServes) {
			break
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return string(rest), cmd.ProcessState.ExitCode()
}

// healthChecks runs the image's program as a service: its health check makes it ready, a failing one restarts it, and
// its stop signal ends it.
func healthChecks(t *testing.T, m *harness.Machine) {
	id := strings.TrimSpace(string(m.Forkd(t, "-q", "fork", warm(t, m))))
	t.Cleanup(func() { m.Forkd(t, "kill", id) })
	m.Forkd(t, "service", "add", id, "web")
	until(t, m, id, "ready", func(s api.Service) bool { return s.State == "ready" })
	m.Forkd(t, "exec", id, "--", "/program", "sicken")
	sick := until(t, m, id, "restarted", func(s api.Service) bool { return s.Restarts > 0 })
	if sick.ExitCode == nil || *sick.ExitCode != 42 {
		t.Errorf("the unhealthy service is %+v, want the exit code 42 of its stop signal", sick)
	}
	m.Forkd(t, "exec", id, "--", "/program", "heal")
	until(t, m, id, "ready again", func(s api.Service) bool { return s.State == "ready" })
	m.Forkd(t, "service", "stop", id, "web")
	until(t, m, id, "stopped", func(s api.Service) bool { return s.State == "stopped" })
	log := string(m.Forkd(t, "logs", id, "--service", "web"))
	if !strings.HasSuffix(log, "serving\nends by user defined signal 1\n") {
		t.Errorf("the log of the stopped service is %q", log)
	}
}

// warm returns the snapshot that `forkd run` made of the image's last form.
func warm(t *testing.T, m *harness.Machine) string { return warmOf(t, m, image) }

func warmOf(t *testing.T, m *harness.Machine, image string) string {
	t.Helper()
	var list []api.SnapshotInfo
	if err := json.Unmarshal(m.Forkd(t, "--json", "snapshot", "ls"), &list); err != nil {
		t.Fatal(err)
	}
	var newest api.SnapshotInfo
	for _, s := range list {
		if strings.HasPrefix(s.Tag, "run-"+image+"-") && s.CreatedAtUnix >= newest.CreatedAtUnix {
			newest = s
		}
	}
	return newest.Tag
}

// until returns the service web once it has a state.
func until(t *testing.T, m *harness.Machine, id, state string, has func(api.Service) bool) api.Service {
	t.Helper()
	var list []api.Service
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if err := json.Unmarshal(m.Forkd(t, "--json", "service", "ls", id), &list); err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 && has(list[0]) {
			return list[0]
		}
		time.Sleep(200 * time.Millisecond) // elapses: the guest's checks have times of their own
	}
	t.Fatalf("the service is not %s: %+v", state, list)
	return api.Service{}
}
