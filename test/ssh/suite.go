// Package ssh runs OpenSSH's own clients (ssh, scp, sftp) against sandboxes of a daemon with real
// VMs, through `forkd ssh`. The clients are on this host, like a user's.
package ssh

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/test/harness"
)

// Suite runs all tests with one sandbox of a snapshot that has Python.
func Suite(t *testing.T, m *harness.Machine, snapshot string) {
	u := newUser(t, m)
	id := strings.TrimSpace(string(m.Forkd(t, "-q", "fork", snapshot)))
	t.Cleanup(func() { m.Forkd(t, "kill", id) })
	u.host = id + ".forkd"
	t.Run("commands", u.commands)
	t.Run("terminal", u.terminal)
	t.Run("files", u.files)
	t.Run("forwarding", u.forwarding)
	t.Run("one connection for several sessions", u.shared)
	t.Run("a lost connection", u.lost)
	t.Run("forkd ssh", func(t *testing.T) { u.command(t, id) })
	t.Run("host keys", func(t *testing.T) { u.hostKeys(t, m, snapshot, id) })
}

// user is a user's home, with ssh's configuration as forkd installs it.
type user struct {
	home, config string
	host         string
	env          []string
}

func newUser(t *testing.T, m *harness.Machine) *user {
	u := &user{home: t.TempDir()}
	u.config = filepath.Join(u.home, ".ssh", "config")
	u.env = append(os.Environ(), "HOME="+u.home, "XDG_CONFIG_HOME=", "FORKD_URL="+m.URL, "FORKD_TOKEN="+m.Token,
		"FORKD_MACHINE=")
	own := "Host *\n    LogLevel ERROR\n"
	if err := os.Mkdir(filepath.Dir(u.config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(u.config, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second changes nothing
		if out, err := u.cmd(t, forkd(t), "ssh", "config", "--install").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	b, err := os.ReadFile(u.config)
	if err != nil || !strings.HasSuffix(string(b), "\n"+own) || strings.Count(string(b), "\n") != 3 {
		t.Fatalf("the user's configuration is %q, %v: want one line before the user's own", b, err)
	}
	return u
}

func forkd(t *testing.T) string {
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", "forkd"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// cmd returns a command of the user. It is long-lived, because a slow machine is no failure.
func (u *user) cmd(t *testing.T, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = u.env
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run runs a client with this input and returns its output and exit code.
func (u *user) run(t *testing.T, input []byte, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := u.cmd(t, name, append([]string{"-F", u.config}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("%s %q: %v: %s", name, args, err, errs.String())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a client that has to succeed.
func (u *user) must(t *testing.T, input []byte, name string, args ...string) string {
	t.Helper()
	out, errs, code := u.run(t, input, name, args...)
	if code != 0 {
		t.Fatalf("%s %q ends with %d: %s%s", name, args, code, out, errs)
	}
	return out
}

func (u *user) commands(t *testing.T) {
	out, errs, code := u.run(t, nil, "ssh", "-o", "SetEnv=GREETING=hello", u.host,
		"echo $GREETING; id -un; pwd; echo bad >&2; exit 7")
	if out != "hello\nuser\n/home/user\n" || errs != "bad\n" || code != 7 {
		t.Errorf("got %q, %q, exit code %d", out, errs, code)
	}
	if out := u.must(t, nil, "ssh", "root@"+u.host, "id -un; pwd"); out != "root\n/root\n" {
		t.Errorf("as root: %q", out)
	}
	_, errs, code = u.run(t, nil, "ssh", "nobody-here@"+u.host, "true")
	if code != 255 || !strings.Contains(errs, "nobody-here") {
		t.Errorf("as an unknown user: %q, exit code %d", errs, code)
	}
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	if out := u.must(t, data, "ssh", u.host, "cat"); out != string(data) {
		t.Errorf("%d bytes through cat became %d others", len(data), len(out))
	}
	if _, _, code := u.run(t, nil, "ssh", u.host, "kill -9 $$"); code != 137 {
		t.Errorf("a killed command ends with %d", code)
	}
}

func (u *user) terminal(t *testing.T) {
	out := u.must(t, []byte("tty >/dev/null && echo a terminal of $TERM\nexit\n"), "ssh", "-tt", u.host)
	if !strings.Contains(out, "a terminal of ") {
		t.Errorf("a login shell says %q", out)
	}
	if out := u.must(t, nil, "ssh", "-tt", u.host, "stty size"); !strings.Contains(out, "24 80") {
		t.Errorf("the size is %q", out)
	}
}

func (u *user) files(t *testing.T) {
	data := make([]byte, 3<<20)
	_, _ = rand.Read(data)
	local, back := filepath.Join(u.home, "a file"), filepath.Join(u.home, "back")
	if err := os.WriteFile(local, data, 0o640); err != nil {
		t.Fatal(err)
	}
	u.must(t, nil, "scp", "-p", local, u.host+":a file")
	u.must(t, []byte("mkdir d\nln -s 'a file' d/link\nrename 'a file' d/renamed\nls -l d\n"), "sftp", "-b", "-", u.host)
	out := u.must(t, nil, "ssh", u.host, "cd d; readlink link; stat -c '%a %s' renamed")
	if out != "a file\n640 3145728\n" {
		t.Errorf("in the sandbox: %q", out)
	}
	u.must(t, nil, "scp", u.host+":d/renamed", back)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the copy back has %d bytes, %v", len(got), err)
	}
	_, errs, code := u.run(t, nil, "scp", local, u.host+":/etc/passwd")
	if code == 0 || !strings.Contains(errs, "ermission denied") {
		t.Errorf("a user's copy to /etc/passwd: %q, exit code %d", errs, code)
	}
}

// server listens on a port of the sandbox's localhost and returns the first line in capitals.
const server = `python3 -c '
import socketserver
class Upper(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())
socketserver.TCPServer(("127.0.0.1", 4321), Upper).serve_forever()'`

func (u *user) forwarding(t *testing.T) {
	u.must(t, nil, "ssh", u.host, "nohup "+server+" >/dev/null 2>&1 &")
	u.eventually(t, func() (string, bool) {
		out, errs, code := u.run(t, []byte("shout\n"), "ssh", "-W", "localhost:4321", u.host)
		return out + errs, code == 0 && out == "SHOUT\n"
	})
	out, errs, code := u.run(t, nil, "ssh", "-o", "LogLevel=INFO", "-W", "192.0.2.1:80", u.host)
	if code == 0 || !strings.Contains(errs, "prohibited") {
		t.Errorf("a connection to another host: %q %q, exit code %d", out, errs, code)
	}
	_, errs, code = u.run(t, nil, "ssh", "-o", "LogLevel=INFO", "-W", "localhost:4322", u.host)
	if code == 0 || !strings.Contains(errs, "4322") {
		t.Errorf("a port without a server: %q, exit code %d", errs, code)
	}
}

func (u *user) shared(t *testing.T) {
	control := filepath.Join(u.home, "ctl")
	mux := []string{"-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", "ControlPath=" + control, u.host}
	// With pipes, ssh would wait for the master, which keeps standard error.
	first := u.cmd(t, "ssh", append([]string{"-F", u.config}, append(mux, "true")...)...)
	if err := first.Run(); err != nil {
		t.Fatal(err)
	}
	all := make(chan string)
	for range 8 {
		go func() {
			cmd := u.cmd(t, "ssh", append([]string{"-F", u.config}, append(mux, "echo one; cat")...)...)
			cmd.Stdin = strings.NewReader("two\n")
			out, _ := cmd.Output()
			all <- string(out)
		}()
	}
	for range 8 {
		if out := <-all; out != "one\ntwo\n" {
			t.Errorf("a session of several says %q", out)
		}
	}
	u.must(t, nil, "ssh", "-o", "ControlPath="+control, "-O", "exit", u.host)
}

// lost kills ssh. The command ends, as at a hang-up of a terminal. A program that left the session
// goes on.
func (u *user) lost(t *testing.T) {
	cmd := u.cmd(t, "ssh", "-F", u.config, u.host, "nohup sleep 54321 >/dev/null 2>&1 & echo started; exec sleep 12345")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("started\n"))
	if _, err := out.Read(line); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	const sleepers = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p 2>/dev/null; echo; done | grep ^sleep"
	u.eventually(t, func() (string, bool) {
		out := u.must(t, nil, "ssh", u.host, sleepers)
		return out, strings.Contains(out, "54321") && !strings.Contains(out, "12345")
	})
}

// command tests the command that runs ssh.
func (u *user) command(t *testing.T, id string) {
	cmd := u.cmd(t, forkd(t), "ssh", "-u", "root", id, "-o", "LogLevel=ERROR", "id -un; exit 3")
	out, _ := cmd.Output()
	if string(out) != "root\n" || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("forkd ssh says %q and ends with %d", out, cmd.ProcessState.ExitCode())
	}
	cmd = u.cmd(t, forkd(t), "ssh", "sb-gone-0001", "true")
	said, _ := cmd.CombinedOutput()
	if !strings.Contains(string(said), "sb-gone-0001") || cmd.ProcessState.ExitCode() != 255 {
		t.Errorf("a missing sandbox: %q, exit code %d", said, cmd.ProcessState.ExitCode())
	}
}

// hostKeys compares the keys of a sandbox and its fork, and connects with a wrong one.
func (u *user) hostKeys(t *testing.T, m *harness.Machine, snapshot, id string) {
	other := strings.TrimSpace(string(m.Forkd(t, "-q", "fork", snapshot)))
	defer m.Forkd(t, "kill", other)
	key := func(id string) string {
		out, err := u.cmd(t, forkd(t), "ssh", "host-key", id).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(string(out), id)
	}
	first, again := key(id), key(id)
	if first == key(other) || first != again {
		t.Error("two forks have the same key, or a sandbox has two")
	}
	known := filepath.Join(u.home, "known")
	if err := os.WriteFile(known, []byte(u.host+key(other)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs, code := u.run(t, nil, "ssh", "-o", "KnownHostsCommand=none", "-o", "UserKnownHostsFile="+known,
		u.host, "true")
	if code != 255 || !strings.Contains(errs, "Host key verification failed") {
		t.Errorf("with the key of another sandbox: %q, exit code %d", errs, code)
	}
}

// eventually repeats an attempt until it succeeds.
func (u *user) eventually(t *testing.T, attempt func() (string, bool)) {
	t.Helper()
	for end := time.Now().Add(harness.Patience()); ; time.Sleep(200 * time.Millisecond) {
		said, ok := attempt()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it never succeeds: %s", said)
		}
	}
}
