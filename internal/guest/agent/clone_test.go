package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// address is a guest's socket address. A clone's address differs before any connection breaks. It
// is the agent's only sign of having been cloned.
type address struct{ cid, asked atomic.Uint32 }

func (a *address) ContextID() (uint32, error) { a.asked.Add(1); return a.cid.Load(), nil }

// noticed calls do and waits until the agent has read its address n more times. The agent reads it
// when a request begins and when a connection breaks.
func (a *address) noticed(t *testing.T, n uint32, do func()) {
	t.Helper()
	before := a.asked.Load()
	do()
	for deadline := time.Now().Add(20 * time.Second); a.asked.Load()-before < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the agent asked for its address %d times, want %d", a.asked.Load()-before, n)
		}
	}
}

func startCloneable(t *testing.T) (*bench, *address) {
	at := &address{}
	return startAgent(t, func(c *agent.Config) { c.Address = at }), at
}

func (b *bench) listed(t *testing.T) []uint32 {
	t.Helper()
	l, err := b.Process().List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	var pids []uint32
	for _, p := range l.Msg.GetProcesses() {
		pids = append(pids, p.GetPid())
	}
	return pids
}

// connectTo follows a process to its end. It calls connected when it is connected.
func (b *bench) connectTo(t *testing.T, pid uint32, connected func()) (out, dropped string, end *process.ProcessEvent_EndEvent) {
	t.Helper()
	sel := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
	s, err := b.Process().Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: sel}))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Receive() || s.Msg().GetEvent().GetStart().GetPid() != pid {
		t.Fatalf("first event: %v, %v", s.Msg(), s.Err())
	}
	connected()
	dropped = s.ResponseHeader().Get(agentproto.HeaderOutputDropped)
	var text strings.Builder
	for s.Receive() {
		d := s.Msg().GetEvent().GetData()
		text.Write(d.GetStdout())
		text.Write(d.GetStderr())
		text.Write(d.GetPty())
		end = s.Msg().GetEvent().GetEnd()
	}
	if end == nil {
		t.Fatalf("no end: %v", s.Err())
	}
	return text.String(), dropped, end
}

// untilFile returns a script that waits for a file.
func untilFile(file string) string { return "while [ ! -e " + file + " ]; do sleep 0.02; done; " }

func touch(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func awaitFile(t *testing.T, file string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s was not made", file)
		}
	}
}

// startings are the ways in which a process is tied to its caller. Each returns a function with
// which the caller leaves.
var startings = []struct {
	name  string
	start func(*testing.T, *bench, string) context.CancelFunc
}{
	{"pipes", func(t *testing.T, b *bench, script string) context.CancelFunc {
		return b.start(t, &process.StartRequest{Process: sh(script)}, agentproto.HeaderKillOnDisconnect, "1").cancel
	}},
	{"a terminal", func(t *testing.T, b *bench, script string) context.CancelFunc {
		return b.start(t, &process.StartRequest{Process: sh(script), Pty: &process.PTY{}}, agentproto.HeaderKillOnDisconnect, "1").cancel
	}},
	{"a collected exec", func(t *testing.T, b *bench, script string) context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = b.Exec(ctx, agentclient.ExecRequest{Args: []string{"sh", "-c", script}})
		}()
		t.Cleanup(func() { cancel(); <-done })
		return cancel
	}},
}

func TestProcessGoesOnInAClone(t *testing.T) {
	for _, how := range startings {
		t.Run(how.name, func(t *testing.T) {
			b, at := startCloneable(t)
			dir := t.TempDir()
			leave := how.start(t, b, "echo $$ > "+dir+"/pid; "+untilFile(dir+"/go")+"echo here; exit 7")
			pid := uint32(pidsIn(t, dir+"/pid", 1)[0])
			at.cid.Add(1)
			at.noticed(t, 1, leave)
			b.become(t, nil)
			if l := b.listed(t); len(l) != 1 || l[0] != pid {
				t.Fatalf("listed: %v, want %d", l, pid)
			}
			out, dropped, end := b.connectTo(t, pid, func() { touch(t, dir+"/go") })
			if strings.TrimSpace(out) != "here" || dropped != "" || end.GetExitCode() != 7 {
				t.Errorf("got %q, %q, %v", out, dropped, end)
			}
		})
	}
}

func TestProcessEndsWhenItsCallerLeaves(t *testing.T) {
	for _, how := range startings {
		t.Run(how.name, func(t *testing.T) {
			b, at := startCloneable(t)
			at.cid.Add(1) // long ago: the request begins in the clone
			file := t.TempDir() + "/pid"
			leave := how.start(t, b, "echo $$ > "+file+"; sleep 1000")
			pid := pidsIn(t, file, 1)[0]
			leave()
			waitGone(t, pid)
		})
	}
}

// A connection that carried the identity also carries requests of the clone.
func TestRequestsAfterAnIdentityAreTheClones(t *testing.T) {
	b, _ := startCloneable(t)
	b.become(t, nil)
	file := t.TempDir() + "/pid"
	leave := startings[0].start(t, b, "echo $$ > "+file+"; sleep 1000")
	pid := pidsIn(t, file, 1)[0] // before the caller leaves, which ends the script
	leave()
	waitGone(t, pid)
}

// Unread output must neither block a process nor be lost completely.
func TestOutputIsKeptForTheClonesCaller(t *testing.T) {
	for _, tc := range []struct {
		name, script  string
		printed, kept int
	}{
		{"little", "echo end", 4, 4},
		{"more than is kept", "head -c 200000 /dev/zero | tr '\\0' x; echo end", 200004, 64 << 10},
	} {
		for _, live := range []bool{true, false} {
			name := tc.name + " of a process that ended"
			if live {
				name = tc.name + " of a process that lives"
			}
			t.Run(name, func(t *testing.T) {
				b, at := startCloneable(t)
				dir := t.TempDir()
				script := untilFile(dir+"/go") + tc.script + "; touch " + dir + "/done; "
				if live {
					script += untilFile(dir + "/end")
				}
				p := b.start(t, &process.StartRequest{Process: sh(script + "exit 3")})
				at.cid.Add(1)
				at.noticed(t, 1, p.cancel)
				touch(t, dir+"/go")
				awaitFile(t, dir+"/done")
				for !live && len(b.listed(t)) > 0 {
					time.Sleep(5 * time.Millisecond)
				}
				out, dropped, end := b.connectTo(t, p.pid, func() { touch(t, dir+"/end") })
				lost, _ := strconv.Atoi(dropped)
				// The rest of a live program's output may stay in its pipe until a reader comes.
				if size := tc.printed - lost; len(out) != size || size < tc.kept || !live && size > tc.kept ||
					!strings.HasSuffix(out, "end\n") || end.GetExitCode() != 3 {
					t.Errorf("got %d bytes, %q dropped, %v", len(out), dropped, end)
				}
			})
		}
	}
}

// A timeout belongs to the command and not to its caller.
func TestDeadlineHoldsInAClone(t *testing.T) {
	b, at := startCloneable(t)
	p := b.start(t, &process.StartRequest{Process: sh("sleep 1000")}, "Connect-Timeout-Ms", "1000")
	at.cid.Add(1)
	p.cancel()
	waitGone(t, int(p.pid))
}

func TestPolledWatchersEndWithAnIdentity(t *testing.T) {
	b, _ := startCloneable(t)
	fs := b.Filesystem()
	w, err := fs.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: t.TempDir()}))
	if err != nil {
		t.Fatal(err)
	}
	b.become(t, nil)
	_, err = fs.GetWatcherEvents(t.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: w.Msg.GetWatcherId()}))
	wantCode(t, err, connect.CodeNotFound)
}

// evalUntil returns code that runs until a file exists.
func evalUntil(file string) string {
	return "import os, time\nopen('" + file + ".began', 'w').close()\nwhile not os.path.exists('" + file + "'): time.sleep(0.01)\n"
}

// underWay starts an evaluation and returns when the interpreter runs it.
func (b *bench) underWay(t *testing.T, file, after string, limit time.Duration) context.CancelFunc {
	t.Helper()
	leave := b.evalBeside(t, evalUntil(file)+after, limit)
	awaitFile(t, file+".began")
	return leave
}

func (b *bench) evalBeside(t *testing.T, code string, limit time.Duration) context.CancelFunc {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.Eval(ctx, &agentv1.EvalRequest{Code: code, TimeoutNs: int64(limit)})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return cancel
}

func TestEvaluationGoesOnInAClone(t *testing.T) {
	needPython(t)
	b, at := startCloneable(t)
	file := filepath.Join(t.TempDir(), "go")
	b.eval(t, "x = 1\nimport forkd_guest\nwho = []\nforkd_guest.on_fork(lambda info: who.append((info['index'], x)))", 0)
	leave := b.underWay(t, file, "print('lost'); x = 2", 0)
	var waiting context.CancelFunc // waiting for its turn
	at.noticed(t, 1, func() { waiting = b.evalBeside(t, "x = 99", 0) })
	at.cid.Add(1)
	at.noticed(t, 1, func() { waiting(); leave() })

	// The identity does not wait for the evaluation, but is applied later.
	r := b.become(t, nil)
	if s := step(t, r, "interpreters"); s.GetError() != "" {
		t.Errorf("got %v", s)
	}
	if i := r.GetInterpreters(); len(i) != 1 || len(i[0].GetReseeded()) != 0 || i[0].GetError() != "" {
		t.Errorf("got %v", i)
	}
	touch(t, file)
	if r := b.eval(t, "x, who", 0); r.GetResult() != "(2, [(7, 2)])" || r.GetStdout() != "" || r.GetStateLost() {
		t.Errorf("got %v", r)
	}
}

func TestEvaluationIsInterruptedWhenItsCallerLeaves(t *testing.T) {
	needPython(t)
	b, _ := startCloneable(t)
	b.eval(t, "x = 1", 0)
	leave := b.underWay(t, filepath.Join(t.TempDir(), "never"), "", time.Hour)
	leave()
	if r := b.eval(t, "x", 0); r.GetResult() != "1" {
		t.Errorf("got %v", r)
	}
}

// An evaluation without a caller must not keep the agent from ending.
func TestCloseEndsAnEvaluationWithoutACaller(t *testing.T) {
	needPython(t)
	b, at := startCloneable(t)
	leave := b.underWay(t, filepath.Join(t.TempDir(), "never"), "", time.Hour)
	at.cid.Add(1)
	at.noticed(t, 1, leave)
	if p, err := b.Ping(t.Context()); err != nil || len(p.GetInterpreters()) != 1 {
		t.Errorf("got %v, %v", p, err)
	}
}
