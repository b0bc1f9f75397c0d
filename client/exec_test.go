package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/client"
)

func run(t *testing.T, c *client.Client, id string, opt client.ExecOptions) (client.ExecStatus, string, string) {
	t.Helper()
	var out, errOut bytes.Buffer
	opt.Stdout, opt.Stderr = &out, &errOut
	st, err := c.ExecStream(t.Context(), id, opt)
	if err != nil {
		t.Fatal(err)
	}
	return st, out.String(), errOut.String()
}

func TestExecStreams(t *testing.T) {
	_, c, id := sandbox(t, map[string]string{"FROM_FORK": "1"})
	if st, out, _ := run(t, c, id, client.ExecOptions{Args: []string{"echo", "a", "b"}}); out != "a b\n" || st.ExitCode != 0 {
		t.Errorf("echo: %q, %+v", out, st)
	}
	if _, out, errOut := run(t, c, id, client.ExecOptions{Args: []string{"warn", "w"}}); out != "" || errOut != "w\n" {
		t.Errorf("warn: %q %q", out, errOut)
	}
	if st, _, _ := run(t, c, id, client.ExecOptions{Args: []string{"exit", "3"}}); st.ExitCode != 3 {
		t.Errorf("exit: %+v", st)
	}
	if _, out, _ := run(t, c, id, client.ExecOptions{Args: []string{"env"}, Env: map[string]string{"X": "y"}}); out != "FROM_FORK=1\nX=y\n" {
		t.Errorf("env: %q", out)
	}
	if _, out, _ := run(t, c, id, client.ExecOptions{Args: []string{"whoami"}, User: "alice"}); out != "alice\n" {
		t.Errorf("whoami: %q", out)
	}
	if _, out, _ := run(t, c, id, client.ExecOptions{Args: []string{"pwd"}, Cwd: "/tmp"}); out != "/tmp\n" {
		t.Errorf("pwd: %q", out)
	}
	if _, out, _ := run(t, c, id, client.ExecOptions{Args: []string{"spam", "8388608"}}); len(out) != 8<<20 {
		t.Errorf("spam: %d bytes", len(out))
	}
}

func TestStdinArrivesWhole(t *testing.T) {
	_, c, id := sandbox(t, nil)
	sent := make([]byte, 3<<20+17)
	rand.Read(sent)
	st, out, _ := run(t, c, id, client.ExecOptions{Args: []string{"cat"}, Stdin: bytes.NewReader(sent)})
	if out != string(sent) || st.ExitCode != 0 {
		t.Errorf("%d bytes of %d came back, %+v", len(out), len(sent), st)
	}
	if _, out, _ := run(t, c, id, client.ExecOptions{Args: []string{"cat"}}); out != "" {
		t.Errorf("no stdin gives %q", out)
	}
}

// expect reads from a terminal until it has seen a text.
type expect struct {
	t *testing.T
	r *io.PipeReader
}

func (e expect) see(text string) {
	e.t.Helper()
	var got strings.Builder
	buf := make([]byte, 256)
	for !strings.Contains(got.String(), text) {
		n, err := e.r.Read(buf)
		if err != nil {
			e.t.Fatalf("terminal ended with %v after %q, want %q", err, got.String(), text)
		}
		got.Write(buf[:n])
	}
}

func TestTerminalIsInteractive(t *testing.T) {
	_, c, id := sandbox(t, nil)
	screen, out := io.Pipe()
	keys, typed := io.Pipe()
	resize := make(chan client.Size)
	type result struct {
		st  client.ExecStatus
		err error
	}
	done := make(chan result, 1)
	go func() {
		st, err := c.ExecStream(t.Context(), id, client.ExecOptions{
			Args: []string{"shell"}, Stdin: keys, Stdout: out, Terminal: &client.Size{Cols: 80, Rows: 24}, Resize: resize,
		})
		out.Close()
		done <- result{st, err}
	}()
	e := expect{t, screen}
	e.see("pty=true")
	io.WriteString(typed, "hello\n")
	e.see("you said hello")
	io.WriteString(typed, "size\n")
	e.see("80x24")
	resize <- client.Size{Cols: 132, Rows: 50}
	io.WriteString(typed, "size\n")
	e.see("132x50")
	io.WriteString(typed, "exit\n")
	if r := <-done; r.err != nil || r.st.ExitCode != 7 {
		t.Errorf("ended with %+v", r)
	}
}

func TestSignalsEndAProgram(t *testing.T) {
	_, c, id := sandbox(t, nil)
	screen, out := io.Pipe()
	signals := make(chan syscall.Signal)
	done := make(chan client.ExecStatus, 1)
	go func() {
		st, err := c.ExecStream(t.Context(), id, client.ExecOptions{Args: []string{"sleep"}, Stdout: out, Signals: signals})
		if err != nil {
			t.Error(err)
		}
		done <- st
	}()
	expect{t, screen}.see("sleeping")
	signals <- syscall.SIGTERM
	if st := <-done; st.ExitCode != 143 || st.Status != "signal: terminated" {
		t.Errorf("ended with %+v", st)
	}
}

func TestContextEndsAProgram(t *testing.T) {
	_, c, id := sandbox(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	screen, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.ExecStream(ctx, id, client.ExecOptions{Args: []string{"sleep"}, Stdout: out})
		done <- err
	}()
	expect{t, screen}.see("sleeping")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestKillEndsAStream(t *testing.T) {
	_, c, id := sandbox(t, nil)
	screen, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.ExecStream(t.Context(), id, client.ExecOptions{Args: []string{"sleep"}, Stdout: out})
		done <- err
	}()
	expect{t, screen}.see("sleeping")
	if err := c.Kill(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the stream ended as if the program had")
	}
}

func TestMissingProgram(t *testing.T) {
	_, c, id := sandbox(t, nil)
	_, err := c.ExecStream(t.Context(), id, client.ExecOptions{Args: []string{"nope"}})
	if !errors.Is(err, client.ErrNoProgram) || !strings.Contains(err.Error(), "nope") {
		t.Errorf("got %v", err)
	}
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestCopyThereAndBack(t *testing.T) {
	_, c, id := sandbox(t, nil)
	here := t.TempDir()
	write(t, here+"/tree/a.txt", "alpha", 0o644)
	write(t, here+"/tree/deep/er/b.sh", "beta", 0o755)
	if err := os.Mkdir(here+"/tree/empty", 0o755); err != nil {
		t.Fatal(err)
	}
	bytes := 0
	opt := client.CopyOptions{Progress: func(n int) { bytes += n }}
	if err := c.CopyTo(t.Context(), id, here+"/tree", "/tmp", opt); err != nil { // into an existing directory
		t.Fatal(err)
	}
	if err := c.CopyTo(t.Context(), id, here+"/tree/a.txt", "/tmp/name.txt", opt); err != nil {
		t.Fatal(err)
	}
	if bytes != 5+4+5 {
		t.Errorf("progress counted %d bytes", bytes)
	}
	back := t.TempDir()
	if err := c.CopyFrom(t.Context(), id, "/tmp/tree", back, client.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.CopyFrom(t.Context(), id, "/tmp/name.txt", back+"/renamed", client.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"tree/a.txt": "alpha", "tree/deep/er/b.sh": "beta", "renamed": "alpha"} {
		if got, err := os.ReadFile(filepath.Join(back, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if st, err := os.Stat(back + "/tree/empty"); err != nil || !st.IsDir() {
		t.Errorf("empty directory: %v", err)
	}
}

func TestCopyOfWhatIsNotThere(t *testing.T) {
	_, c, id := sandbox(t, nil)
	if err := c.CopyFrom(t.Context(), id, "/nope", t.TempDir(), client.CopyOptions{}); !client.IsNotFound(err) {
		t.Errorf("from the guest: %v", err)
	}
	if err := c.CopyTo(t.Context(), id, t.TempDir()+"/nope", "/tmp", client.CopyOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("from here: %v", err)
	}
	if _, err := c.Download(t.Context(), id, "/etc", ""); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("download of a directory: %v", err)
	}
}
