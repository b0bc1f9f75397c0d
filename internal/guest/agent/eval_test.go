package agent_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

func needPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
}

func (b *bench) eval(t *testing.T, code string, limit time.Duration) *agentv1.EvalResponse {
	t.Helper()
	r, err := b.Eval(t.Context(), &agentv1.EvalRequest{Code: code, TimeoutNs: int64(limit)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEval(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	for _, tc := range []struct {
		name, code, result, stdout, stderr, err string
		exit                                    int32
	}{
		{"the last expression is the result", "1+1", "2", "", "", "", 0},
		{"a statement has none", "x = 41", "", "", "", "", 0},
		{"state stays", "x + 1", "42", "", "", "", 0},
		{"None is none", "None", "", "", "", "", 0},
		{"repr, not str", "'a\\nb'", `'a\nb'`, "", "", "", 0},
		{"prints are caught", "print('hi'); import sys; print('no', file=sys.stderr)", "", "hi\n", "no\n", "", 0},
		{"so is what subprocesses write", "import os; os.system('echo sub; echo err >&2')", "0", "sub\n", "err\n", "", 0},
		{"and what is written to the descriptor", "_ = os.write(1, b'raw\\xff')", "", "raw\uFFFD", "", "", 0},
		{"functions see globals", "def f(): return x\nf()", "41", "", "", "", 0},
		{"exit sets the code and keeps the state", "raise SystemExit(7)", "", "", "", "", 7},
		{"exit with a text says it", "import sys; sys.exit('bye')", "", "", "bye\n", "", 1},
		{"exit() is exit too", "print('before'); exit(3)", "", "before\n", "", "", 3},
		{"exit without a code", "exit()", "", "", "", "", 0},
		{"exit with more than a byte", "exit(256 + 5)", "", "", "", "", 5},
		{"exit below zero", "exit(-1)", "", "", "", "", 255},
		{"exit with what no C has", "exit(10**30)", "", "", "", "", 255},
		{"exit with a truth", "exit(True)", "", "", "", "", 1},
		{"exit with an object", "exit((1, 2))", "", "", "(1, 2)\n", "", 1},
		{"exit with what cannot be shown", "class E:\n def __str__(self): raise ValueError\nexit(E())", "", "", "", "", 1},
		{"exit in a function, through finally", "def g():\n try: exit(4)\n finally: print('f')\ng()", "", "f\n", "", "", 4},
		{"exit of a subclass", "class X(SystemExit): pass\nraise X(6)", "", "", "", "", 6},
		{"standard input survives exit()", "import sys; sys.stdin.read()", "''", "", "", "", 0},
		{"and its descriptor", "import os; os.fstat(0).st_rdev == os.stat('/dev/null').st_rdev", "True", "", "", "", 0},
		{"the state is still there", "x", "41", "", "", "", 0},
		{"prints before an exception are its own", "print('p'); 1/0", "", "p\n", "", "ZeroDivisionError: division by zero", 1},
		{"an empty program is fine", "", "", "", "", "", 0},
		{"lone surrogates do no harm", "'\\ud800'", `'\ud800'`, "", "", "", 0},
		{"a repr that raises is an error", "class C:\n def __repr__(self): raise ValueError('r')\nC()", "", "", "", "ValueError: r", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := b.eval(t, tc.code, 0)
			if r.GetResult() != tc.result || r.GetStdout() != tc.stdout || r.GetStderr() != tc.stderr || r.GetError() != tc.err || r.GetExitCode() != tc.exit {
				t.Errorf("got %v", r)
			}
		})
	}
}

func TestEvalTraceback(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	r := b.eval(t, "def f():\n    return 1/0\nf()", 0)
	if r.GetExitCode() != 1 || r.GetError() != "ZeroDivisionError: division by zero" {
		t.Errorf("got %v", r)
	}
	for _, want := range []string{"Traceback (most recent call last)", "return 1/0", "line 2, in f"} {
		if !strings.Contains(r.GetTraceback(), want) {
			t.Errorf("traceback lacks %q:\n%s", want, r.GetTraceback())
		}
	}
	if strings.Contains(r.GetTraceback(), "evaluate") {
		t.Errorf("traceback shows the driver:\n%s", r.GetTraceback())
	}
	if r := b.eval(t, "def (", 0); !strings.HasPrefix(r.GetError(), "SyntaxError") || r.GetTraceback() == "" {
		t.Errorf("syntax error: got %v", r)
	}
}

func TestEvalTimeout(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	b.eval(t, "x = 1", 0)
	r := b.eval(t, "while True: pass", 300*time.Millisecond)
	if !r.GetTimedOut() || r.GetStateLost() || r.GetExitCode() != 124 || !strings.Contains(r.GetTraceback(), "KeyboardInterrupt") {
		t.Errorf("got %v", r)
	}
	if r := b.eval(t, "x", 0); r.GetResult() != "1" {
		t.Errorf("the state is gone: %v", r)
	}
	r = b.eval(t, "import time\nwhile True:\n try:\n  time.sleep(100)\n except KeyboardInterrupt: pass", 300*time.Millisecond)
	if !r.GetTimedOut() || !r.GetStateLost() || !strings.Contains(r.GetError(), "state is lost") {
		t.Errorf("got %v", r)
	}
	if r := b.eval(t, "'x' in globals()", 0); r.GetResult() != "False" {
		t.Errorf("not a fresh interpreter: %v", r)
	}
}

func TestEvalOfWhatEndsTheInterpreter(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	for _, tc := range []struct {
		name, code, text string
		exit             int32
	}{
		{"exit of the process", "import os; os._exit(3)", "exited with status 3", 3},
		{"a fatal signal", "import os; os.kill(os.getpid(), 9)", "signal", 137},
		{"garbage on the driver's pipe", "import os; os.write(4, b'\\xff\\xff\\xff\\xff')", "state is lost", 1},
		{"an answer that is no JSON", "import os; os.write(4, b'\\0\\0\\0\\1{')", "state is lost", 1},
		{"a closed pipe", "import os; os.close(4)", "state is lost", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := b.eval(t, tc.code, 0)
			if !r.GetStateLost() || !strings.Contains(r.GetError(), tc.text) || r.GetExitCode() != tc.exit {
				t.Errorf("got %v", r)
			}
			if r := b.eval(t, "2*3", 0); r.GetResult() != "6" {
				t.Errorf("no fresh interpreter: %v", r)
			}
		})
	}
}

func TestEvalCapsOutput(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	r := b.eval(t, "print('x' * (6 << 20))", 0)
	if len(r.GetStdout()) != 4<<20 || r.GetDropped() != 2<<20+1 {
		t.Errorf("kept %d, dropped %d", len(r.GetStdout()), r.GetDropped())
	}
	r = b.eval(t, "'y' * (3 << 20)", 0)
	if len(r.GetResult()) > 1<<20+100 || !strings.HasSuffix(r.GetResult(), "characters more)") {
		t.Errorf("result of %d bytes", len(r.GetResult()))
	}
}

func TestEvalsOfOneLanguageTakeTurns(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	b.eval(t, "n = 0", 0)
	done := make(chan error, 8)
	for range cap(done) {
		go func() {
			_, err := b.Eval(t.Context(), &agentv1.EvalRequest{Code: "m = n\nfor _ in range(10000): pass\nn = m + 1"})
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if r := b.eval(t, "n", 0); r.GetResult() != "8" {
		t.Errorf("got %s, want 8", r.GetResult())
	}
}

func TestEvalUnknownLanguage(t *testing.T) {
	b := startAgent(t)
	_, err := b.Eval(t.Context(), &agentv1.EvalRequest{Language: "cobol", Code: "x"})
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "there is: python") {
		t.Errorf("got %v", err)
	}
}

func TestWarmAndPing(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	p, err := b.Ping(t.Context())
	if err != nil || p.GetPid() == 0 || len(p.GetInterpreters()) != 0 {
		t.Fatalf("got %v, %v", p, err)
	}
	w, err := b.Warm(t.Context(), &agentv1.WarmRequest{Steps: []*agentv1.WarmStep{
		{Language: "python", Code: "import sys, types; m = types.ModuleType('numpy'); m.__version__ = '9.9'; sys.modules['numpy'] = m"},
		{Language: "python", Code: "1/0"},
		{Language: "python", Code: "print('never')"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := w.GetResults()
	if len(r) != 2 || r[0].GetError() != "" || !strings.Contains(r[1].GetTraceback(), "ZeroDivisionError") {
		t.Errorf("got %v", r)
	}
	if p, err = b.Ping(t.Context()); err != nil || len(p.GetInterpreters()) != 1 || p.GetInterpreters()[0].GetModules()["numpy"] != "9.9" {
		t.Errorf("got %v, %v", p, err)
	}
}

// TestEvalIsAsPython checks that exit codes and messages are the same as in python -c.
func TestEvalIsAsPython(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	for _, code := range []string{"0", "3", "-3", "255", "256", "2**31", "2**63", "-2**63", "-2**63-1", "True", "None", "'text'", "1.5", "b'x'", ""} {
		code = "raise SystemExit(" + code + ")"
		cmd := exec.Command("python3", "-c", code)
		var said strings.Builder
		cmd.Stderr = &said
		_ = cmd.Run()
		if r := b.eval(t, code, 0); int(r.GetExitCode()) != cmd.ProcessState.ExitCode() || r.GetStderr() != said.String() || r.GetStateLost() {
			t.Errorf("%s: got %v, python exits with %d and says %q", code, r, cmd.ProcessState.ExitCode(), said.String())
		}
	}
}

func TestEvalKeepsBytes(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	r := b.eval(t, "import sys; _ = sys.stdout.buffer.write(bytes(range(256))); _ = sys.stderr.buffer.write(b'\\xfe')", 0)
	if !bytes.Equal(r.GetStdoutRaw(), all) || string(r.GetStderrRaw()) != "\xfe" || r.GetStderr() != "\uFFFD" {
		t.Errorf("got %v", r)
	}
	if r := b.eval(t, "print('caf\u00e9')", 0); r.GetStdoutRaw() != nil || r.GetStdout() != "caf\u00e9\n" {
		t.Errorf("text: got %v", r)
	}
	// The largest output, of the kind that needs most space.
	r = b.eval(t, "for f in (sys.stdout, sys.stderr): _ = f.buffer.write(b'\\xffa' * (2 << 20))", 0)
	if len(r.GetStdoutRaw()) != 4<<20 || len(r.GetStderrRaw()) != 4<<20 {
		t.Errorf("got %d and %d bytes", len(r.GetStdoutRaw()), len(r.GetStderrRaw()))
	}
}

func TestEvalHasItsTraceOnly(t *testing.T) {
	needPython(t)
	b := startAgent(t)
	const (
		parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		show   = "import os; (os.environ.get('TRACEPARENT'), os.environ.get('TRACESTATE'), " +
			"os.popen('echo -$TRACEPARENT-$TRACESTATE-').read())"
		absent  = `(None, None, '---\n')`
		present = `('` + parent + `', 'a=b', '-` + parent + `-a=b-\n')`
	)
	eval := func(t *testing.T, parent, code, want string) {
		t.Helper()
		r, err := b.Eval(t.Context(), &agentv1.EvalRequest{Code: code, Traceparent: parent, Tracestate: "a=b",
			TimeoutNs: int64(10 * time.Second)})
		if err != nil || r.GetResult() != want {
			t.Errorf("got %v, %v, want %s", r, err, want)
		}
	}
	for _, step := range []struct{ name, parent, code, want string }{
		{"the interpreter was started by a traced request", parent, show, present},
		{"the next has none", "", show, absent},
		{"nor has the one after an exception", parent, "1/0", ""},
		{"as here", "", show, absent},
		{"nor after an exit", parent, "exit(3)", ""},
		{"as here", "", show, absent},
		{"an invalid one is none", "00-short-01", show, absent},
		{"the code's own value gives way", "", "os.environ['TRACEPARENT'] = 'mine'", ""},
		{"while a trace is there", parent, "os.environ['TRACEPARENT']", "'" + parent + "'"},
		{"and comes back", "", "os.environ['TRACEPARENT']", "'mine'"},
		{"a value set meanwhile stays", parent, "os.environ['TRACEPARENT'] = 'other'", ""},
		{"as here", "", "os.environ['TRACEPARENT']", "'other'"},
		{"a deleted one stays deleted", parent, "del os.environ['TRACEPARENT']", ""},
		{"as here", "", show, absent},
		{"an environment replaced", parent, "real = os.environ; os.environ = None; 1", "1"},
		{"does not stop later ones", parent, "os.environ = real; 2", "2"},
		{"nor keeps the trace", "", show, absent},
	} {
		t.Run(step.name, func(t *testing.T) { eval(t, step.parent, step.code, step.want) })
	}
	t.Run("an interrupted evaluation", func(t *testing.T) {
		r, err := b.Eval(t.Context(), &agentv1.EvalRequest{Code: "while True: pass", Traceparent: parent,
			TimeoutNs: int64(300 * time.Millisecond)})
		if err != nil || !r.GetTimedOut() || r.GetStateLost() {
			t.Fatalf("got %v, %v", r, err)
		}
		eval(t, "", show, absent)
	})
}
