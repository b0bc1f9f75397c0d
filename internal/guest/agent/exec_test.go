package agent_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
)

func TestExec(t *testing.T) {
	b := startAgent(t)
	for _, tc := range []struct {
		name   string
		req    agentclient.ExecRequest
		out    string
		errOut string
		code   int
		status string
	}{
		{"stdout, stderr and an exit code come apart", agentclient.ExecRequest{Args: []string{"sh", "-c", "echo out; echo err >&2; exit 3"}}, "out\n", "err\n", 3, "exit status 3"},
		{"success has status 0", agentclient.ExecRequest{Args: []string{"true"}}, "", "", 0, "exit status 0"},
		{"a signal is told by name", agentclient.ExecRequest{Args: []string{"sh", "-c", "kill -9 $$"}}, "", "", -1, "signal: killed"},
		{"environment of the request is seen", agentclient.ExecRequest{Args: []string{"sh", "-c", "echo $A$HOME"}, Env: map[string]string{"A": "x", "HOME": "/h"}}, "x/h\n", "", 0, "exit status 0"},
		{"cwd is where it runs", agentclient.ExecRequest{Args: []string{"pwd"}, Cwd: "/usr"}, "/usr\n", "", 0, "exit status 0"},
		{"stdin is fed and closed", agentclient.ExecRequest{Args: []string{"cat"}, Stdin: []byte("hello")}, "hello", "", 0, "exit status 0"},
		{"no stdin is an empty one", agentclient.ExecRequest{Args: []string{"cat"}}, "", "", 0, "exit status 0"},
		{"a command that ignores its stdin ends all the same", agentclient.ExecRequest{Args: []string{"true"}, Stdin: bytes.Repeat([]byte("x"), 1<<20)}, "", "", 0, "exit status 0"},
		{"output that outlives its shell is awaited", agentclient.ExecRequest{Args: []string{"sh", "-c", "(sleep 0.1; echo late) & exit 0"}}, "late\n", "", 0, "exit status 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res, err := b.Exec(t.Context(), tc.req)
			if err != nil {
				t.Fatal(err)
			}
			if string(res.Stdout) != tc.out || string(res.Stderr) != tc.errOut || res.ExitCode != tc.code || res.Status != tc.status {
				t.Errorf("got %q, %q, %d, %q; want %q, %q, %d, %q", res.Stdout, res.Stderr, res.ExitCode, res.Status, tc.out, tc.errOut, tc.code, tc.status)
			}
			if res.Pid == 0 {
				t.Error("no pid told")
			}
		})
	}
}

func TestExecOfWhatCannotRun(t *testing.T) {
	b := startAgent(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "bad")
	if err := os.WriteFile(script, []byte("\x00\x01no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		req  agentclient.ExecRequest
		code connect.Code
		text string
	}{
		{"a missing program", agentclient.ExecRequest{Args: []string{"no-such-program"}}, connect.CodeInvalidArgument, "command 'no-such-program' not found"},
		{"a missing path", agentclient.ExecRequest{Args: []string{"/no/such"}}, connect.CodeInvalidArgument, "no such file"},
		{"a folder", agentclient.ExecRequest{Args: []string{"/usr"}}, connect.CodeInvalidArgument, "is a directory"},
		{"a file without the right", agentclient.ExecRequest{Args: []string{plain}}, connect.CodeInvalidArgument, "permission denied"},
		{"a file that is no program", agentclient.ExecRequest{Args: []string{script}}, connect.CodeInvalidArgument, "exec format error"},
		{"a missing folder", agentclient.ExecRequest{Args: []string{"true"}, Cwd: "/no/such"}, connect.CodeInvalidArgument, "cwd '/no/such' does not exist"},
		{"an unknown user", agentclient.ExecRequest{Args: []string{"true"}, User: "nobody-here"}, connect.CodeUnauthenticated, "invalid username: 'nobody-here'"},
		{"another user's home", agentclient.ExecRequest{Args: []string{"true"}, Cwd: "~bin"}, connect.CodeInvalidArgument, "not supported"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := b.Exec(t.Context(), tc.req)
			if connect.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v (%v), want %v with %q", err, connect.CodeOf(err), tc.code, tc.text)
			}
		})
	}
	if _, err := b.Exec(t.Context(), agentclient.ExecRequest{}); err == nil {
		t.Error("an empty command was run")
	}
}

// waitGone waits until a process is gone (or another process's zombie).
func waitGone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d still lives", pid)
}

func pidsIn(t *testing.T, file string, want int) []int {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		b, _ := os.ReadFile(file)
		f := strings.Fields(string(b))
		if len(f) >= want {
			var out []int
			for _, s := range f {
				n, err := strconv.Atoi(s)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, n)
			}
			return out
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has %d pids, want %d", file, len(f), want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestTimeoutKillsTheTree(t *testing.T) {
	b := startAgent(t)
	file := filepath.Join(t.TempDir(), "pids")
	// A shell, a child in the background and one in its own session.
	script := "echo $$ >> $F; sleep 1000 & echo $! >> $F; setsid sh -c 'echo $$ >> $F; exec sleep 1000' & wait"
	res, err := b.Exec(t.Context(), agentclient.ExecRequest{
		Args: []string{"sh", "-c", script}, Env: map[string]string{"F": file}, Timeout: 1500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !res.TimedOut || res.ExitCode != -1 {
		t.Errorf("got %+v, want a timeout", res)
	}
	for _, pid := range pidsIn(t, file, 3) {
		waitGone(t, pid)
	}
}

func TestCancelKillsTheTree(t *testing.T) {
	b := startAgent(t)
	file := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := b.Exec(ctx, agentclient.ExecRequest{
			Args: []string{"sh", "-c", "echo $$ >> $F; sleep 1000 & echo $! >> $F; wait"}, Env: map[string]string{"F": file},
		})
		done <- err
	}()
	pids := pidsIn(t, file, 2)
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled exec reported success")
	}
	for _, pid := range pids {
		waitGone(t, pid)
	}
}

func TestFloodOfOutputIsBounded(t *testing.T) {
	b := startAgent(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const size = 100 << 20
	res, err := b.Exec(t.Context(), agentclient.ExecRequest{
		Args: []string{"sh", "-c", "head -c " + strconv.Itoa(size) + " /dev/zero"},
	})
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if len(res.Stdout) != agentclient.DefaultMaxOutput || res.DroppedStdout != size-agentclient.DefaultMaxOutput {
		t.Errorf("kept %d, dropped %d of %d", len(res.Stdout), res.DroppedStdout, size)
	}
	// Client and agent share this process. Most of the growth is doubling of the kept output.
	if grown := int64(after.Sys) - int64(before.Sys); grown > 80<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
}

// A reader that stops reading stops the writer, but blocks neither for ever.
func TestSlowReaderHoldsTheWriter(t *testing.T) {
	b := startAgent(t)
	blocked := make(chan struct{})
	release := make(chan struct{})
	once := false
	var got int
	done := make(chan error, 1)
	file := filepath.Join(t.TempDir(), "done")
	go func() {
		_, err := b.Exec(t.Context(), agentclient.ExecRequest{
			Args: []string{"sh", "-c", "head -c 50000000 /dev/zero; echo x > $F"}, Env: map[string]string{"F": file},
			OnOutput: func(_ bool, p []byte) {
				got += len(p)
				if !once {
					once = true
					close(blocked)
					<-release
				}
			},
		})
		done <- err
	}()
	select {
	case <-blocked:
	case err := <-done:
		t.Fatalf("ended before any output: %v", err)
	}
	time.Sleep(300 * time.Millisecond) // elapses: time enough to write it all, were nobody holding it
	if _, err := os.Stat(file); err == nil {
		t.Error("50 MB were written though nobody read them")
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got != 50000000 {
		t.Errorf("got %d bytes", got)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error("the writer did not go on")
	}
}

func TestExecAsAnotherUser(t *testing.T) {
	if syscall.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	b := startAgent(t)
	res, err := b.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"sh", "-c", "id -un; echo $USER; echo $HOME"}, User: "daemon"})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(res.Stdout); !strings.HasPrefix(got, "daemon\ndaemon\n/usr/sbin") {
		t.Errorf("got %q", got)
	}
}
