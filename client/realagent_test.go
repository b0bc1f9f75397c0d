package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/guest/agent"
)

// withAgent is a fake engine with real agents in its sandboxes.
type withAgent struct {
	*fakeengine.Engine
	socket string
}

func (w withAgent) DialAgent(ctx context.Context, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", w.socket)
}

// noSystem keeps a test's agent from changing the host.
type noSystem struct{}

func (noSystem) AddEntropy([]byte) error                 { return nil }
func (noSystem) SetClock(time.Time) error                { return nil }
func (noSystem) SetHostname(string) error                { return nil }
func (noSystem) WipeOnFork(context.Context) (int, error) { return 0, nil }
func (noSystem) PrepareWipeOnFork(context.Context) error { return nil }
func (noSystem) BindBootID(string) error                 { return nil }

// realAgent returns a client of a sandbox with a real agent, over real HTTP on both sides.
func realAgent(t *testing.T, change ...func(*agent.Config)) (*client.Client, string) {
	t.Helper()
	cfg := agent.Config{Version: "test", Root: t.TempDir(), System: noSystem{}, HooksDir: "/nowhere", CgroupMount: t.TempDir()}
	for _, c := range change {
		c(&cfg)
	}
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "forkd-ra-")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/agent")
	if err != nil {
		t.Fatal(err)
	}
	images := fakeengine.NewImages("python-numpy")
	engine := withAgent{fakeengine.New(images), dir + "/agent"}
	s := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(engine), Images: images})
	api1, err := listen.Listen(t.Context(), "unix://"+dir+"/api", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- a.Serve(ctx, l) }()
	go func() { ended <- s.Run(ctx, []listen.Listener{api1}, time.Second) }()
	c, err := client.New(client.Options{URL: api1.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		stop()
		if err := errors.Join(<-ended, <-ended, a.Close()); err != nil {
			t.Error(err)
		}
		engine.Close()
		os.RemoveAll(dir)
	})
	if _, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "py", Image: "python-numpy"}, nil); err != nil {
		t.Fatal(err)
	}
	res, err := c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "py"})
	if err != nil {
		t.Fatal(err)
	}
	return c, res.Sandboxes[0].ID
}

func TestRealAgentRunsPrograms(t *testing.T) {
	c, id := realAgent(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
	st, out, _ := run(t, c, id, client.ExecOptions{Args: []string{"cat"}, Stdin: bytes.NewReader(sent)})
	if out != string(sent) || st.ExitCode != 0 {
		t.Errorf("cat: %d bytes of %d, %+v", len(out), len(sent), st)
	}
	for _, row := range []struct {
		script, out, errOut string
		code                int
	}{
		{"echo o; echo e >&2; exit 3", "o\n", "e\n", 3},
		{"kill -TERM $$", "", "", 143},
		{"kill -KILL $$", "", "", 137},
		{"kill -SEGV $$", "", "", 139},
		{"pwd; echo $X", "/tmp\ny\n", "", 0},
		{"cat", "", "", 0}, // without input, it is /dev/null
	} {
		st, out, errOut := run(t, c, id, client.ExecOptions{Args: []string{"sh", "-c", row.script}, Cwd: "/tmp", Env: map[string]string{"X": "y"}})
		if out != row.out || errOut != row.errOut || st.ExitCode != row.code {
			t.Errorf("%s: %q %q %+v", row.script, out, errOut, st)
		}
	}
	if _, out, _ := run(t, c, id, client.ExecOptions{Args: []string{"head", "-c", "20000000", "/dev/zero"}}); len(out) != 20_000_000 {
		t.Errorf("20 MB of output came as %d bytes", len(out))
	}
	// A program that does not read all its input must not block.
	if st, _, _ := run(t, c, id, client.ExecOptions{Args: []string{"true"}, Stdin: bytes.NewReader(sent)}); st.ExitCode != 0 {
		t.Errorf("true: %+v", st)
	}
}

func TestRealAgentRefusesWhatCannotRun(t *testing.T) {
	c, id := realAgent(t)
	plain := filepath.Join(t.TempDir(), "plain")
	write(t, plain, "no program", 0o644)
	for _, row := range []struct {
		name string
		opt  client.ExecOptions
		want error
	}{
		{"missing in PATH", client.ExecOptions{Args: []string{"no-such-program"}}, client.ErrNoProgram},
		{"missing file", client.ExecOptions{Args: []string{"/no/such/program"}}, client.ErrNoProgram},
		{"directory", client.ExecOptions{Args: []string{"/tmp"}}, client.ErrNotExecutable},
		{"plain file", client.ExecOptions{Args: []string{plain}}, client.ErrNotExecutable},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := c.ExecStream(t.Context(), id, row.opt); !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
	if _, err := c.ExecStream(t.Context(), id, client.ExecOptions{Args: []string{"true"}, User: "nobody-of-that-name"}); err == nil {
		t.Error("an unknown user was accepted")
	}
}

func TestRealAgentHasTerminals(t *testing.T) {
	c, id := realAgent(t)
	screen, out := io.Pipe()
	keys, typed := io.Pipe()
	resize := make(chan client.Size)
	done := make(chan client.ExecStatus, 1)
	go func() {
		st, err := c.ExecStream(t.Context(), id, client.ExecOptions{
			Args: []string{"sh", "-c", "while read line; do stty size; done; exit 9"}, Stdin: keys, Stdout: out,
			Terminal: &client.Size{Cols: 81, Rows: 25}, Resize: resize,
		})
		if err != nil {
			t.Error(err)
		}
		out.Close()
		done <- st
	}()
	e := expect{t, screen}
	io.WriteString(typed, "\n")
	e.see("25 81")
	resize <- client.Size{Cols: 132, Rows: 50}
	// The new size and the keys use different requests.
	for i := 0; i < 100; i++ {
		io.WriteString(typed, "\n")
		var b [4096]byte
		n, err := screen.Read(b[:])
		if err != nil || strings.Contains(string(b[:n]), "50 132") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	go io.Copy(io.Discard, screen)
	typed.Close() // Ctrl-D
	if st := <-done; st.ExitCode != 9 {
		t.Errorf("ended with %+v", st)
	}
}

func TestRealAgentKillsTheTreeOfWhoLeaves(t *testing.T) {
	c, id := realAgent(t)
	ctx, cancel := context.WithCancel(t.Context())
	pids, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.ExecStream(ctx, id, client.ExecOptions{Args: []string{"sh", "-c", "sleep 1000 & echo pid $!; wait"}, Stdout: out})
		done <- err
	}()
	line := make([]byte, 64)
	n, err := pids.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	child := strings.TrimSpace(strings.TrimPrefix(string(line[:n]), "pid "))
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for running(child) {
		if time.Now().After(deadline) {
			t.Fatalf("process %s outlived its caller", child)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// running returns false for a process that has ended or waits to be reaped.
func running(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func TestRealAgentTakesSignals(t *testing.T) {
	c, id := realAgent(t)
	screen, out := io.Pipe()
	signals := make(chan syscall.Signal)
	done := make(chan client.ExecStatus, 1)
	go func() {
		st, err := c.ExecStream(t.Context(), id, client.ExecOptions{
			Args: []string{"sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"}, Stdout: out, Signals: signals,
		})
		if err != nil {
			t.Error(err)
		}
		done <- st
	}()
	expect{t, screen}.see("up")
	signals <- syscall.SIGTERM
	if st := <-done; st.ExitCode != 5 {
		t.Errorf("ended with %+v", st)
	}
}

func TestRealAgentCopiesTrees(t *testing.T) {
	c, id := realAgent(t)
	here, there, back := t.TempDir(), t.TempDir(), t.TempDir()
	big := strings.Repeat("big file ", 1<<20)
	write(t, here+"/tree/a b.txt", "alpha", 0o644)
	write(t, here+"/tree/bin/run", "#!/bin/sh\n", 0o755)
	write(t, here+"/tree/big", big, 0o600)
	if err := os.Mkdir(here+"/tree/empty", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.CopyTo(t.Context(), id, here+"/tree", there, client.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(there + "/tree/bin/run"); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("executable file in the guest: %v, %v", st, err)
	}
	for link, target := range map[string]string{"/tree/inside": "bin/run", "/tree/outside": "/etc/passwd", "/tree/up": "../.."} {
		if err := os.Symlink(target, there+link); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.CopyFrom(t.Context(), id, there+"/tree", back, client.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a b.txt": "alpha", "bin/run": "#!/bin/sh\n", "big": big} {
		if got, err := os.ReadFile(filepath.Join(back, "tree", name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if st, err := os.Stat(back + "/tree/bin/run"); err != nil || st.Mode().Perm()&0o100 == 0 {
		t.Errorf("executable file that came back: %v, %v", st, err)
	}
	for name, want := range map[string]string{"outside": "/etc/passwd", "inside": "bin/run", "up": "../.."} {
		if text, err := os.Readlink(filepath.Join(back, "tree", name)); err != nil || text != want {
			t.Errorf("link %s: %q, %v", name, text, err)
		}
	}
}

// TestCopyDoesNotWriteThroughLinks: otherwise a guest could write anywhere, with a link and a later
// file of the same name.
func TestCopyDoesNotWriteThroughLinks(t *testing.T) {
	c, id := realAgent(t)
	there, back, secret := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "secret")
	write(t, secret, "untouched", 0o644)
	write(t, there+"/tree/file", "evil", 0o644)
	if err := os.MkdirAll(back+"/tree", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, back+"/tree/file"); err != nil {
		t.Fatal(err)
	}
	if err := c.CopyFrom(t.Context(), id, there+"/tree", back, client.CopyOptions{}); err == nil {
		t.Error("a file was written through a link out of the target")
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "untouched" {
		t.Errorf("secret is %q, %v", got, err)
	}
}

// A command in a sandbox that its user broke has the reason of the API, with the sandbox's name.
func TestExecInABrokenSandbox(t *testing.T) {
	shell := filepath.Join(t.TempDir(), "sh")
	if err := os.WriteFile(shell, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	c, id := realAgent(t, func(cfg *agent.Config) { cfg.SystemFiles = []string{shell} })
	run := func() error {
		_, err := c.ExecStream(t.Context(), id, client.ExecOptions{Args: []string{"no-such-program"}})
		return err
	}
	if err := run(); !errors.Is(err, client.ErrNoProgram) {
		t.Errorf("before: %v", err)
	}
	if err := os.Remove(shell); err != nil {
		t.Fatal(err)
	}
	var e *client.Error
	if err := run(); !errors.As(err, &e) || e.Code != api.CodeGuestGone || e.Reason != api.ReasonSandboxBroken || e.Details["sandbox"] != id {
		t.Errorf("after: %+v", e)
	}
}

// An argument that Linux does not take is an error with the limit and the way out.
func TestExecWithALongArgument(t *testing.T) {
	c, id := realAgent(t)
	const want = "argument 1 is 131072 bytes, and Linux takes at most 131071: pass it on stdin or in a file"
	_, err := c.ExecStream(t.Context(), id, client.ExecOptions{Args: []string{"true", strings.Repeat("x", 128<<10)}})
	if client.CodeOf(err) != api.CodeInvalid || errors.Is(err, client.ErrNoProgram) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
