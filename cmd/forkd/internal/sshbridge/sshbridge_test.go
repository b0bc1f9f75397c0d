package sshbridge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/forkd/forkd/client"
)

// recorder is a sandbox that records what the bridge asks for. test/ssh runs the bridge over real
// sandboxes with OpenSSH's clients.
type recorder struct {
	mu  sync.Mutex
	got []client.ExecOptions
	run func(context.Context, client.ExecOptions) (client.ExecStatus, error)
}

func (r *recorder) Exec(ctx context.Context, opt client.ExecOptions) (client.ExecStatus, error) {
	r.mu.Lock()
	r.got = append(r.got, opt)
	r.mu.Unlock()
	if r.run == nil {
		return client.ExecStatus{}, nil
	}
	return r.run(ctx, opt)
}

func (r *recorder) calls() []client.ExecOptions {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]client.ExecOptions{}, r.got...)
}

func (r *recorder) Dial(context.Context, uint16) (net.Conn, error) {
	return nil, errors.New("there is no server")
}

// pair returns two ends of a connection with a buffer: both sides of SSH begin by writing.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("unix", l.Addr().String()); err == nil {
		far, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	return near, far
}

// connect returns an SSH client of a bridge to the sandbox, and the end of the bridge.
func connect(t *testing.T, to Sandbox, user string) (*ssh.Client, <-chan error) {
	t.Helper()
	key, err := HostKey(make([]byte, secretBytes), "sb-1")
	if err != nil {
		t.Fatal(err)
	}
	near, far := pair(t)
	served := make(chan error, 1)
	go func() { served <- Serve(t.Context(), far, key, to) }()
	conn, channels, requests, err := ssh.NewClientConn(near, "sb-1", &ssh.ClientConfig{
		User: user, HostKeyCallback: ssh.FixedHostKey(key.PublicKey()),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := ssh.NewClient(conn, channels, requests)
	t.Cleanup(func() { c.Close() })
	return c, served
}

func TestASessionBecomesAnExec(t *testing.T) {
	r := &recorder{run: func(_ context.Context, opt client.ExecOptions) (client.ExecStatus, error) {
		_, _ = io.Copy(opt.Stdout, opt.Stdin)
		return client.ExecStatus{ExitCode: 137, KilledBy: "killed by the guest's kernel: out of memory"}, nil
	}}
	c, served := connect(t, r, DefaultUser)
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Setenv("A", "b"); err != nil {
		t.Error(err)
	}
	if err := s.Setenv("A=", "b"); err == nil {
		t.Error("a variable with = in its name is accepted")
	}
	var out, errs bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader("hello"), &out, &errs
	var ended *ssh.ExitError
	if err := s.Run("work"); !errors.As(err, &ended) || ended.ExitStatus() != 137 {
		t.Errorf("it ends with %v", err)
	}
	if out.String() != "hello" || errs.String() != "forkd: killed by the guest's kernel: out of memory\n" {
		t.Errorf("the output is %q and %q", out.String(), errs.String())
	}
	got := r.calls()[0]
	if got.User != "" || got.Env["A"] != "b" || got.Args[len(got.Args)-1] != "work" || got.Terminal != nil || !got.Outlive {
		t.Errorf("the program is %+v", got)
	}
	c.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestATerminalChangesItsSize(t *testing.T) {
	sizes := make(chan client.Size, 1)
	r := &recorder{run: func(_ context.Context, opt client.ExecOptions) (client.ExecStatus, error) {
		sizes <- *opt.Terminal
		sizes <- <-opt.Resize
		return client.ExecStatus{}, nil
	}}
	c, _ := connect(t, r, "alice")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestPty("xterm", 1<<20, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	if got := <-sizes; got != (client.Size{Cols: 80, Rows: 1<<15 - 1}) {
		t.Errorf("the size is %v", got)
	}
	if err := s.WindowChange(10, 20); err != nil {
		t.Fatal(err)
	}
	if got := <-sizes; got != (client.Size{Cols: 20, Rows: 10}) {
		t.Errorf("the new size is %v", got)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
	if got := r.calls()[0]; got.User != "alice" || got.Env["TERM"] != "xterm" {
		t.Errorf("the program is %+v", got)
	}
}

func TestRefusals(t *testing.T) {
	c, _ := connect(t, &recorder{}, "alice")
	for _, to := range []string{"192.0.2.1:80", "example.org:80", "localhost:0"} {
		if _, err := c.Dial("tcp", to); err == nil || !strings.Contains(err.Error(), "prohibited") {
			t.Errorf("%s: %v", to, err)
		}
	}
	if _, err := c.Dial("tcp", "[::1]:80"); err == nil || !strings.Contains(err.Error(), "there is no server") {
		t.Errorf("a port without a server: %v", err)
	}
	if _, _, err := c.OpenChannel("x11", nil); err == nil {
		t.Error("a channel of X11 is accepted")
	}
	if _, _, err := c.OpenChannel("direct-tcpip", []byte("short")); err == nil {
		t.Error("a malformed channel is accepted")
	}
	if l, err := c.Listen("tcp", "localhost:0"); err == nil {
		l.Close()
		t.Error("remote forwarding is accepted")
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestSubsystem("netconf"); err == nil {
		t.Error("an unknown subsystem is accepted")
	}
	for _, payload := range []string{"", "\x00\x00\x00\xff"} {
		if ok, _ := s.SendRequest("exec", true, []byte(payload)); ok {
			t.Errorf("exec with %q is accepted", payload)
		}
	}
	if err := s.Start("one"); err != nil {
		t.Fatal(err)
	}
	if ok, _ := s.SendRequest("exec", true, ssh.Marshal(textRequest{"two"})); ok {
		t.Error("a session runs two programs")
	}
}

func TestAnErrorIsExplained(t *testing.T) {
	r := &recorder{run: func(context.Context, client.ExecOptions) (client.ExecStatus, error) {
		return client.ExecStatus{}, errors.New("sandbox sb-1 is paused")
	}}
	c, _ := connect(t, r, "alice")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	s.Stderr = &errs
	var ended *ssh.ExitError
	if err := s.Run("x"); !errors.As(err, &ended) || ended.ExitStatus() != exitFailed {
		t.Errorf("it ends with %v", err)
	}
	if errs.String() != "forkd: sandbox sb-1 is paused\n" {
		t.Errorf("the client reads %q", errs.String())
	}
}

// Checks that a lost client sends SIGHUP to its program, and that a program that ignores it goes on
// without the bridge.
func TestALostClient(t *testing.T) {
	r := &recorder{}
	r.run = func(ctx context.Context, opt client.ExecOptions) (client.ExecStatus, error) {
		if opt.Started == nil { // kill
			return client.ExecStatus{}, nil
		}
		opt.Started(4242)
		<-ctx.Done()
		return client.ExecStatus{}, ctx.Err()
	}
	c, served := connect(t, r, "alice")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("work"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	select {
	case <-served:
	case <-time.After(time.Minute): // elapses: never, unless the bridge hangs
		t.Fatal("the bridge goes on")
	}
	got := r.calls()
	if len(got) != 2 || strings.Join(got[1].Args, " ") != `/bin/sh -c kill -HUP "$1" sh 4242` || got[1].User != "alice" {
		t.Errorf("the calls are %+v", got)
	}
}

func TestAClientThatIsNotSSH(t *testing.T) {
	key, err := HostKey(make([]byte, secretBytes), "sb-1")
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(t.Context(), far, key, &recorder{}) }()
	go func() { _, _ = io.Copy(io.Discard, near) }()
	_, _ = near.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	near.Close()
	if err := <-served; err == nil {
		t.Error("no error")
	}
}

func TestHostKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "secret")
	var all sync.WaitGroup
	secrets := make([][]byte, 8)
	for i := range secrets {
		all.Go(func() {
			var err error
			if secrets[i], err = Secret(file); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range secrets {
		if !bytes.Equal(s, secrets[0]) {
			t.Fatal("two processes have different secrets")
		}
	}
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o600 {
		t.Errorf("the secret's file is %v, %v", st, err)
	}
	line := func(secret []byte, id string) string {
		k, err := HostKey(secret, id)
		if err != nil {
			t.Fatal(err)
		}
		return KnownHost("host", k.PublicKey())
	}
	if first, again := line(secrets[0], "sb-1"), line(secrets[0], "sb-1"); first != again {
		t.Error("a sandbox has two keys")
	}
	if line(secrets[0], "sb-1") == line(secrets[0], "sb-2") || line(secrets[0], "sb-1") == line(make([]byte, 32), "sb-1") {
		t.Error("two sandboxes or two users have the same key")
	}
	if err := os.WriteFile(file, []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Secret(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a cut secret: %v", err)
	}
}

// Checks with OpenSSH's own parser that the configuration survives strange paths.
func TestTheConfigurationAsSSHReadsIt(t *testing.T) {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatalf("%v: make deps installs openssh-client", err)
	}
	for _, path := range []string{"/usr/bin/forkd", "/opt/my tools/forkd", "/opt/50%/it's/forkd", `/opt/a"b\c/forkd`} {
		p := Program{Path: path, Args: []string{"--machine-name=a b"}}
		main := filepath.Join(t.TempDir(), ".ssh", "config")
		own := filepath.Join(filepath.Dir(filepath.Dir(main)), "own config")
		for i := range 2 {
			if changed, err := Install(main, own, p.Config()); err != nil || changed != (i == 0) {
				t.Fatalf("installation %d: %t, %v", i, changed, err)
			}
		}
		out, err := exec.Command(ssh, "-G", "-F", main, "sb-1.forkd").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", path, err, out)
		}
		want := "proxycommand " + p.line(shellWord, "ssh", "proxy", "%n") + "\n"
		if !strings.Contains(string(out), want) || !strings.Contains(string(out), "\nuser "+DefaultUser+"\n") {
			t.Errorf("ssh reads %s, want %s", out, want)
		}
		// What the shell makes of the command, after ssh has replaced the tokens.
		line := strings.NewReplacer("%%", "%", "%n", "sb-1.forkd").Replace(p.line(shellWord, "ssh", "proxy", "%n"))
		words, err := exec.Command("sh", "-c", `printf '%s|' `+line).Output()
		if err != nil || string(words) != path+"|--machine-name=a b|ssh|proxy|sb-1.forkd|" {
			t.Errorf("the shell reads %q, %v", words, err)
		}
	}
}

func TestHost(t *testing.T) {
	for id, want := range map[string]bool{"sb-1": true, "sb-1.forkd": true, "": false, "-oProxyCommand=x": false, "a;b": false, "$(x)": false} {
		if host, ok := Host(id); ok != want || ok && host != "sb-1.forkd" {
			t.Errorf("%q: %q, %t", id, host, ok)
		}
	}
}

func TestInstallKeepsTheUsersFile(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "dotfiles"), filepath.Join(dir, "config")
	if err := os.WriteFile(real, []byte("Host a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "own")
	if _, err := Install(link, own, "block\n"); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != real {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if b, _ := os.ReadFile(real); string(b) != "Include \""+own+"\"\nHost a\n" {
		t.Errorf("the file is %q", b)
	}
	if _, err := Install(link, dir+"/a\"b", "block\n"); err == nil {
		t.Error("a name with a quote is accepted")
	}
}
