package forkcmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// reply is the fake agent's answer to one call.
type reply struct {
	answer forkwire.Answer
	result string
}

// fakeAgent answers calls in turn and stores them.
type fakeAgent struct {
	socket  string
	replies chan reply

	mu        sync.Mutex
	requests  []forkwire.Request
	results   []string
	confirmed int
}

func startFake(t *testing.T, replies ...reply) *fakeAgent {
	t.Helper()
	f := &fakeAgent{socket: filepath.Join(t.TempDir(), "s"), replies: make(chan reply, len(replies))}
	for _, r := range replies {
		f.replies <- r
	}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.serve(t, c)
		}
	}()
	t.Cleanup(func() { l.Close(); <-served })
	return f
}

func (f *fakeAgent) serve(t *testing.T, c net.Conn) {
	defer c.Close()
	r := forkwire.NewReader(c)
	req, result, err := forkwire.ReadRequest(r)
	if err == nil {
		err = req.Check()
	}
	if err != nil {
		t.Errorf("the command sent: %v", err)
		return
	}
	next := reply{answer: forkwire.Answer{Error: forkwire.Errorf(forkwire.NoChildren, "there is no child to wait for")}}
	select {
	case next = <-f.replies:
	default:
	}
	f.mu.Lock()
	f.requests, f.results = append(f.requests, req), append(f.results, string(result))
	f.mu.Unlock()
	if err := forkwire.WriteAnswer(c, next.answer, []byte(next.result)); err != nil {
		t.Error(err)
	}
	if next.answer.Ended == nil {
		return
	}
	if b, err := r.ReadByte(); err == nil && b == forkwire.Collected {
		f.mu.Lock()
		f.confirmed++
		f.mu.Unlock()
	}
}

// run runs a command against the fake.
func (f *fakeAgent) run(t *testing.T, stdin *os.File, name string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	c := command{socket: f.socket, stdin: stdin, stdout: &o, stderr: &e}
	code, known := c.run(name, args)
	if !known {
		t.Fatalf("%s is no command", name)
	}
	return code, o.String(), e.String()
}

func refusal(code forkwire.Code) reply {
	return reply{answer: forkwire.Answer{Error: forkwire.Errorf(code, "said the host")}}
}

func ended(index, code int, how forkwire.Status, result string) reply {
	return reply{forkwire.Answer{Ended: &forkwire.Ended{ID: fmt.Sprintf("sb-%d", index), Index: index, Status: how, Code: code}}, result}
}

var forked = reply{answer: forkwire.Answer{Children: []forkwire.Child{{Index: 1, ID: "sb-1"}, {Index: 2, ID: "sb-2"}}}}

func TestFork(t *testing.T) {
	partly := reply{answer: forkwire.Answer{Children: []forkwire.Child{{Index: 1, ID: "sb-1"}, {Index: 2, Error: "no room"}}}}
	child := reply{answer: forkwire.Answer{Index: 2, ID: "sb-2", Parent: "gf"}}
	for _, c := range []struct {
		name      string
		reply     reply
		args      []string
		code      int
		out, errs string
	}{
		{"original", forked, []string{"2"}, 0, "0\nsb-1\nsb-2\n", ""},
		{"original, as JSON", forked, []string{"2", "--json"}, 0, `{"index":0,"children":[{"index":1,"id":"sb-1"},{"index":2,"id":"sb-2"}]}` + "\n", ""},
		{"child", child, []string{"2"}, 0, "2\n", ""},
		{"child, as JSON", child, []string{"--json", "2"}, 0, `{"index":2,"id":"sb-2","parent":"gf"}` + "\n", ""},
		{"one could not be made", partly, []string{"2"}, exitPartial, "0\nsb-1\n", "child 2 could not be made: no room"},
		{"denied", refusal(forkwire.Denied), []string{"2"}, exitDenied, "", "said the host"},
		{"limit", refusal(forkwire.Limit), []string{"2"}, exitDenied, "", "said the host"},
		{"busy", refusal(forkwire.Busy), []string{"2"}, exitBusy, "", "said the host"},
		{"interrupted", refusal(forkwire.Interrupted), []string{"2"}, exitInterrupt, "", "said the host"},
		{"failed", refusal(forkwire.Failed), []string{"2"}, exitFailed, "", "said the host"},
		{"no number", forked, nil, exitUsage, "", "number of children"},
		{"none", forked, []string{"0"}, exitUsage, "", "1 to 1000"},
		{"too many", forked, []string{"1001"}, exitUsage, "", "1 to 1000"},
		{"unknown flag", forked, []string{"2", "--fast"}, exitUsage, "", "usage"},
		{"help", forked, []string{"--help"}, 0, "", "usage: forkd-fork N"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := startFake(t, c.reply).run(t, os.Stdin, forkName, c.args...)
			if code != c.code || out != c.out || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
			}
		})
	}
}

func TestWithoutAnAgent(t *testing.T) {
	f := &fakeAgent{socket: filepath.Join(t.TempDir(), "none")}
	if code, _, errs := f.run(t, os.Stdin, forkName, "1"); code != exitFailed || !strings.Contains(errs, "call the agent") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if _, known := (command{}).run("forkd-agent", nil); known {
		t.Error("the agent's own name is taken for a command")
	}
}

func TestWait(t *testing.T) {
	dir := t.TempDir()
	f := startFake(t, ended(2, 0, forkwire.Exited, "two"), ended(1, -1, forkwire.Killed, ""))
	code, out, errs := f.run(t, os.Stdin, waitName, "sb-1", "--results", dir, "sb-2", "--timeout", "10s")
	if want := "2\tsb-2\texited\t0\t3\t\n1\tsb-1\tkilled\t-\t0\t\n"; code != exitPartial || out != want {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "2-sb-2")); err != nil || string(b) != "two" {
		t.Errorf("the result is %q, %v", b, err)
	}
	if r := f.requests[0]; !slices.Equal(r.IDs, []string{"sb-1", "sb-2"}) || r.TimeoutMS < 1 || r.TimeoutMS > 10000 || f.confirmed != 2 {
		t.Errorf("asked %+v, confirmed %d", r, f.confirmed)
	}

	f = startFake(t, ended(1, 0, forkwire.Exited, "\xff"), ended(2, 0, forkwire.Exited, "two"))
	code, out, _ = f.run(t, os.Stdin, waitName, "--json")
	if want := `{"id":"sb-1","index":1,"status":"exited","code":0,"result":"","result_raw":"/w=="}` + "\n" + `{"id":"sb-2","index":2,"status":"exited","code":0,"result":"two"}` + "\n"; code != 0 || out != want {
		t.Errorf("exit code %d, stdout %q", code, out)
	}
	if code, out, _ := startFake(t, ended(1, 0, forkwire.Exited, ""), ended(2, 0, forkwire.Exited, "")).run(t, os.Stdin, waitName, "--any"); code != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("any: exit code %d, stdout %q", code, out)
	}
	if code, _, _ := startFake(t).run(t, os.Stdin, waitName); code != exitNoChildren {
		t.Errorf("without children: exit code %d", code)
	}
	if code, _, _ := startFake(t, ended(1, 0, forkwire.Exited, ""), refusal(forkwire.TimedOut)).run(t, os.Stdin, waitName, "--timeout", "1s"); code != exitTimeout {
		t.Errorf("too late: exit code %d", code)
	}
}

// A result that cannot be stored is not confirmed, and so not lost.
func TestAResultThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "1-sb-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := startFake(t, ended(1, 0, forkwire.Exited, "one"))
	if code, _, errs := f.run(t, os.Stdin, waitName, "--results", dir); code != exitFailed || !strings.Contains(errs, "keep the result") || f.confirmed != 0 {
		t.Errorf("exit code %d: %s; confirmed %d", code, errs, f.confirmed)
	}
}

func TestExitRefused(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, []byte("the result"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		code   int
		result string
		errs   string
	}{
		{[]string{"3"}, exitFailed, "the result", "said the host"},
		{[]string{"3", "--no-result"}, exitFailed, "", "said the host"},
		{[]string{"256"}, exitUsage, "", "0 to 255"},
		{nil, exitUsage, "", "exit code"},
	} {
		file, err := os.Open(in)
		if err != nil {
			t.Fatal(err)
		}
		f := startFake(t, refusal(forkwire.NotAChild))
		code, _, errs := f.run(t, file, exitName, c.args...)
		file.Close()
		if code != c.code || !strings.Contains(errs, c.errs) || strings.Join(f.results, "") != c.result {
			t.Errorf("%q: exit code %d: %s; result %q", c.args, code, errs, f.results)
		}
	}
	large, err := os.CreateTemp(t.TempDir(), "large")
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	if err := large.Truncate(forkwire.MaxResult + 1); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := startFake(t).run(t, large, exitName, "0"); code != exitUsage || !strings.Contains(errs, "larger than") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// python runs a program with the module, and with the fake as its agent.
func (f *fakeAgent) python(t *testing.T, program string) string {
	t.Helper()
	py, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "forkd.py"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(py, "-c", fmt.Sprintf("import forkd\nforkd._SOCKET = %q\n%s", f.socket, program))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

func TestPythonOriginal(t *testing.T) {
	f := startFake(t, forked, ended(2, 7, forkwire.Exited, "two"), refusal(forkwire.TimedOut), ended(1, -1, forkwire.Died, ""))
	got := f.python(t, `
print(forkd.fork(2), [tuple(c) for c in forkd.children])
try:
    forkd.wait(0.5)
except TimeoutError as e:
    print("late", e)
print([tuple(e) for e in forkd.wait()], forkd.wait())
`)
	want := "0 [(1, 'sb-1', ''), (2, 'sb-2', '')]\nlate said the host\n[(1, 'sb-1', 'died', -1, '', b''), (2, 'sb-2', 'exited', 7, '', b'two')] []"
	if got != want || f.confirmed != 2 {
		t.Errorf("got %q, confirmed %d", got, f.confirmed)
	}
	if r := f.requests; !slices.Equal(r[1].IDs, []string{"sb-1", "sb-2"}) || !slices.Equal(r[3].IDs, []string{"sb-1"}) || r[1].TimeoutMS < 1 {
		t.Errorf("asked %+v", r)
	}
}

func TestPythonChild(t *testing.T) {
	f := startFake(t, forked, reply{answer: forkwire.Answer{Index: 2, ID: "sb-2", Parent: "gf"}})
	var got struct {
		Index    int
		Children []any
		Env      []string
		Random   []float64
		Ends     []any
	}
	out := f.python(t, `
import json, os, random
forkd.fork(2)
random.seed(1)
state = random.getstate()
index = forkd.fork(2)
first = random.random()
random.setstate(state)
print(json.dumps(dict(index=index, children=forkd.children, random=[first, random.random()], ends=forkd.wait(),
    env=[os.environ["FORKD_" + n] for n in ("INDEX", "SANDBOX_ID", "PARENT")])))
`)
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Index != 2 || len(got.Children) != 0 || len(got.Ends) != 0 || strings.Join(got.Env, " ") != "2 sb-2 gf" || got.Random[0] == got.Random[1] {
		t.Errorf("got %s", out)
	}
}

func TestPythonErrors(t *testing.T) {
	f := startFake(t, refusal(forkwire.Denied), refusal(forkwire.NotAChild))
	got := f.python(t, `
for do in (lambda: forkd.fork(3), lambda: forkd.exit(0, "x"), lambda: forkd.exit(0, b"x" * (1 << 20 | 1))):
    try:
        do()
    except (forkd.ForkError, ValueError) as e:
        print(getattr(e, "code", "-"), e)
forkd._SOCKET += "none"
try:
    forkd.fork()
except OSError as e:
    print(e.code)
`)
	want := "denied denied: said the host\nnot_a_child not_a_child: said the host\n- the result is 1048577 bytes, want at most 1048576\nunavailable"
	if got != want {
		t.Errorf("got %q", got)
	}
}
