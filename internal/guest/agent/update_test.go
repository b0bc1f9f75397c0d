package agent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agent/handover"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
	"github.com/forkd/forkd/internal/guest/agentproto/updatewire"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// updatedAgent makes the test program an agent with its sockets in the folder named. As in a guest,
// an update executes a new program in the same process.
const updatedAgent = "FORKD_TEST_AGENT"

// runUpdatedAgent is the agent's main function. The first program is of version 1 and withholds
// services; each later one reports its number.
func runUpdatedAgent(dir string, args []string) int {
	if slices.Contains(args, fmt.Sprintf("--%s=%d", agent.TrialFlag, handover.Version)) {
		return 0
	}
	if err := serveUpdatedAgent(dir); err != nil {
		fmt.Fprintln(os.Stderr, "test agent:", err)
		return 1
	}
	return 0
}

func serveUpdatedAgent(dir string) error {
	from, err := handover.Take()
	if err != nil {
		return err
	}
	number := 1
	if from != nil {
		if err := agent.Own(from, &number); err != nil {
			return err
		}
	}
	cfg := agent.Config{
		Version: fmt.Sprint(number), Orphans: true, ImageFile: filepath.Join(dir, "image.json"), Root: dir,
		System: &fakeSystem{}, CgroupMount: filepath.Join(dir, "none"), IdentityPort: true, From: from,
		ServicesFile: filepath.Join(dir, "services.json"),
		Log:          func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) },
		Update: &agent.UpdateConfig{Dir: dir,
			Exec: func(b *handover.Bundle, program *os.File, state any, ready func() error) error {
				return b.Exec(program, os.Args, os.Environ(), state, ready)
			},
			Own: func(*handover.Bundle) any { return number + 1 }},
	}
	if number == 1 {
		cfg.Withheld = []string{agentproto.CanServices}
	}
	a, err := agent.New(cfg)
	if err != nil {
		return err
	}
	if from != nil {
		from.Close()
	}
	var serving sync.WaitGroup
	type port struct {
		name  string
		serve func(context.Context, net.Listener) error
	}
	for _, p := range []port{{"i", a.ServeIdentity}, {"e", a.ServeEvals}, {"u", a.ServeUpdates}, {"a", a.Serve}} { // a is asked first
		path := filepath.Join(dir, p.name)
		_ = os.Remove(path)
		l, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		serving.Go(func() { _ = p.serve(context.Background(), l) })
	}
	serving.Wait()
	return nil
}

// updatable is an agent in a process of its own.
type updatable struct {
	*bench
	t   *testing.T
	dir string
	pid int
}

func startUpdatable(t *testing.T) *updatable {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "up") // a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), updatedAgent+"="+dir)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the agent said:\n%s", said.String())
		}
	})
	u := &updatable{bench: &bench{}, t: t, dir: dir, pid: cmd.Process.Pid}
	u.connect()
	return u
}

func (u *updatable) dialTo(name string) agentclient.DialFunc {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(u.dir, name))
	}
}

// connect makes new clients, and waits until the agent answers.
func (u *updatable) connect() *agentv1.PingResponse {
	u.t.Helper()
	if u.Client != nil {
		u.Close()
	}
	u.identity = u.dialTo("i")
	u.Client = agentclient.New(u.dialTo("a"), agentclient.WithIdentityPort(u.identity),
		agentclient.WithEvalPort(u.dialTo("e")))
	u.t.Cleanup(func() { u.Close() })
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var r *agentv1.PingResponse
		if r, err = u.Ping(u.t.Context()); err == nil {
			return r
		}
	}
	u.t.Fatalf("the agent does not answer: %v", err)
	return nil
}

// send sends a program, and returns the reason of a refusal.
func (u *updatable) send(program []byte, change func(*updatewire.Header)) string {
	u.t.Helper()
	c, err := u.dialTo("u")(u.t.Context())
	if err != nil {
		u.t.Fatal(err)
	}
	defer c.Close()
	h := updatewire.Header{Size: int64(len(program)), Digest: sha256.Sum256(program)}
	if change != nil {
		change(&h)
	}
	if err := updatewire.WriteHeader(c, h); err != nil {
		u.t.Fatal(err)
	}
	_, _ = c.Write(program)
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	a, err := updatewire.ReadAnswer(c)
	if err != nil {
		u.t.Fatal(err)
	}
	if a.Code == updatewire.Refused {
		return a.Reason
	}
	if a, err := updatewire.ReadAnswer(c); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		u.t.Fatalf("after going: %v, %v", a, err)
	}
	return ""
}

// self is the test program, as the new agent.
func self(t *testing.T) []byte {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > updatewire.MaxProgram {
		t.Fatal("the test program is larger than an agent may be")
	}
	return b
}

// background starts a command and lets its caller leave as in a clone: after it took an identity.
func (u *updatable) background(script string, terminal bool) *process.ProcessSelector {
	u.t.Helper()
	req := &process.StartRequest{Process: &process.ProcessConfig{Cmd: "sh", Args: []string{"-c", script}}}
	if terminal {
		req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	}
	r := u.start(u.t, req)
	sel := r.sel()
	r.until("begun")
	r.cancel()
	return sel
}

func (u *updatable) attach(sel *process.ProcessSelector) *connected {
	u.t.Helper()
	stream, err := u.Process().Connect(u.t.Context(), connect.NewRequest(&process.ConnectRequest{Process: sel}))
	if err != nil {
		u.t.Fatal(err)
	}
	return &connected{u.t, stream}
}

type connected struct {
	t      *testing.T
	stream *connect.ServerStreamForClient[process.ConnectResponse]
}

func (c *connected) end() (string, int32) {
	c.t.Helper()
	defer c.stream.Close()
	var out strings.Builder
	for c.stream.Receive() {
		ev := c.stream.Msg().GetEvent()
		out.Write(ev.GetData().GetStdout())
		out.Write(ev.GetData().GetPty())
		if end := ev.GetEnd(); end != nil {
			return out.String(), end.GetExitCode()
		}
	}
	c.t.Fatalf("no end: %v; got %q", c.stream.Err(), out.String())
	return "", 0
}

func TestAnUpdateKeepsTheAgentsWork(t *testing.T) {
	program := self(t)
	u := startUpdatable(t)
	if r := u.connect(); r.GetVersion() != "1" || slices.Contains(r.GetCapabilities(), agentproto.CanServices) ||
		!slices.Contains(r.GetCapabilities(), agentproto.CanUpdate) {
		t.Fatalf("the first agent is %v", r)
	}
	if _, err := u.IdentityByPort(t.Context(), &agentv1.IdentityRequest{SandboxId: "sb-up", Index: 7, Parent: "base",
		Entropy: make([]byte, 64), Env: map[string]string{"COLOUR": "blue"}}); err != nil {
		t.Fatal(err)
	}
	u.declare(t, shell("web", "echo up; read x; exit 0"))
	u.declare(t, shell("web", "echo up; while :; do sleep 0.05; echo tick; done"))
	before := u.until(t, "ready", func(s servicespec.Status) bool { return s.State == servicespec.IsReady && s.LogBytes > 20 })
	plain := u.background("echo begun; read x; echo got $x; exit 5", false)
	terminal := u.background("echo begun; read x; echo seen $x; exit 6", true)
	python := false
	if _, err := exec.LookPath("python3"); err == nil {
		python = true
		u.eval(t, "kept = 41", 20*time.Second)
	}

	if why := u.send(program, nil); why != "" {
		t.Fatalf("the update was refused: %s", why)
	}
	r := u.connect()
	if r.GetVersion() != "2" || !slices.Contains(r.GetCapabilities(), agentproto.CanServices) {
		t.Errorf("the second agent is %v", r)
	}
	if r.GetSandboxId() != "sb-up" || r.GetIndex() != 7 || r.GetPid() != uint32(u.pid) {
		t.Errorf("the identity is lost: %v, want process %d", r, u.pid)
	}
	after := u.until(t, "going on", func(s servicespec.Status) bool { return s.LogBytes > before.LogBytes+10 })
	if after.PID != before.PID || after.Restarts != 0 || after.State != servicespec.IsReady {
		t.Errorf("the service was %+v, is %+v", before, after)
	}
	for _, sel := range []*process.ProcessSelector{plain, terminal} {
		in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("word\n")}}
		want, code := "got word", int32(5)
		if sel == terminal {
			in = &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("word\n")}}
			want, code = "seen word", 6
		}
		c := u.attach(sel)
		if _, err := u.Process().SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: sel, Input: in})); err != nil {
			t.Error(err)
		}
		if out, got := c.end(); !strings.Contains(out, want) || got != code {
			t.Errorf("the command ended with %d and %q, want %d and %q", got, out, code, want)
		}
	}
	if python {
		if got := u.eval(t, "kept + 1", 20*time.Second).GetResult(); got != "42" {
			t.Errorf("the interpreter has %q, want 42", got)
		}
	}
	if out, err := u.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"sh", "-c", "echo $COLOUR"}}); err != nil ||
		strings.TrimSpace(string(out.Stdout)) != "blue" {
		t.Errorf("a new command has %q, %v, want the identity's environment", out.Stdout, err)
	}
	// The service is supervised: a kill is noticed, and its replacement runs.
	if err := unix.Kill(after.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	u.until(t, "restarted", func(s servicespec.Status) bool {
		return s.State == servicespec.IsReady && s.PID != after.PID && s.Restarts == 1
	})
	// An updated agent can be updated.
	if why := u.send(program, nil); why != "" {
		t.Fatalf("the second update was refused: %s", why)
	}
	if r := u.connect(); r.GetVersion() != "3" {
		t.Errorf("the third agent is %v", r)
	}
}

func TestARefusedUpdateChangesNothing(t *testing.T) {
	program := self(t)
	u := startUpdatable(t)
	u.declare(t, shell("web", "exec sleep 1000"))
	before := u.until(t, "ready", state(servicespec.IsReady))
	damaged := bytes.Clone(program)
	damaged[len(damaged)/2] ^= 1
	for _, c := range []struct {
		name    string
		program []byte
		change  func(*updatewire.Header)
		want    string
	}{
		{"a damaged program", damaged, func(h *updatewire.Header) { h.Digest = sha256.Sum256(program) }, "digest"},
		{"no program", []byte("hello"), nil, "does not start"},
		{"a program that is no agent", []byte("#!/bin/sh\necho >&2 not me; exit 3\n"), nil, "not me"},
		{"a huge program", []byte("x"), func(h *updatewire.Header) { h.Size = 1 << 40 }, "broke its protocol"},
	} {
		if why := u.send(c.program, c.change); !strings.Contains(why, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, why, c.want)
		}
	}
	// A command with a caller would lose it.
	r := u.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}})
	if why := u.send(program, nil); !strings.Contains(why, "caller") {
		t.Errorf("with a caller: got %q", why)
	}
	if _, err := u.Process().SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: r.sel(),
		Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("still here\n")}}})); err != nil {
		t.Fatal(err)
	}
	r.until("still here")
	if got := u.until(t, "as before", state(servicespec.IsReady)); got.PID != before.PID || got.Restarts != 0 {
		t.Errorf("the service was %+v, is %+v", before, got)
	}
	if r := u.connect(); r.GetVersion() != "1" {
		t.Errorf("the agent is %v, want the old one", r)
	}
	left, err := filepath.Glob(filepath.Join(u.dir, "forkd-agent-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Output that is written all the time is neither lost nor doubled by an update.
func TestNoOutputIsLostInAnUpdate(t *testing.T) {
	program := self(t)
	u := startUpdatable(t)
	spec := shell("count", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i; done; sleep 1000")
	spec.LogBytes = 1 << 20
	u.declare(t, spec)
	u.until(t, "writing", func(s servicespec.Status) bool { return s.LogBytes > 2000 })
	if why := u.send(program, nil); why != "" {
		t.Fatal(why)
	}
	u.connect()
	var want bytes.Buffer
	for i := 1; i <= 20000; i++ {
		fmt.Fprintln(&want, i)
	}
	u.until(t, "done", func(s servicespec.Status) bool { return s.LogBytes >= int64(want.Len()) })
	log, err := u.ServiceLog(t.Context(), "count", -1, false)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if got, err := io.ReadAll(log); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, want.Len())
	}
}
