package agent_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// running is a started process as seen by a client.
type running struct {
	t      *testing.T
	pid    uint32
	stream *connect.ServerStreamForClient[process.StartResponse]
	cancel context.CancelFunc
}

func (b *bench) start(t *testing.T, req *process.StartRequest, header ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r := connect.NewRequest(req)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header().Set(header[i], header[i+1])
	}
	stream, err := b.Process().Start(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	p := &running{t: t, stream: stream, cancel: cancel}
	if !stream.Receive() {
		t.Fatalf("no first event: %v", stream.Err())
	}
	p.pid = stream.Msg().GetEvent().GetStart().GetPid()
	if p.pid == 0 {
		t.Fatalf("first event is %v, want start", stream.Msg())
	}
	return p
}

func (p *running) sel() *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: p.pid}}
}

// until collects output until it contains text.
func (p *running) until(text string) string {
	p.t.Helper()
	var out strings.Builder
	for !strings.Contains(out.String(), text) {
		if !p.stream.Receive() {
			p.t.Fatalf("stream ended (%v) before %q came; got %q", p.stream.Err(), text, out.String())
		}
		d := p.stream.Msg().GetEvent().GetData()
		out.Write(d.GetStdout())
		out.Write(d.GetStderr())
		out.Write(d.GetPty())
	}
	return out.String()
}

// end collects the rest.
func (p *running) end() (string, *process.ProcessEvent_EndEvent) {
	p.t.Helper()
	var out strings.Builder
	for p.stream.Receive() {
		ev := p.stream.Msg().GetEvent()
		out.Write(ev.GetData().GetStdout())
		out.Write(ev.GetData().GetStderr())
		out.Write(ev.GetData().GetPty())
		if ev.GetEnd() != nil {
			if p.stream.Receive() {
				p.t.Errorf("an event after the end: %v", p.stream.Msg())
			}
			return out.String(), ev.GetEnd()
		}
	}
	p.t.Fatalf("no end event after %d bytes: %v", out.Len(), p.stream.Err())
	return "", nil
}

func (b *bench) send(t *testing.T, p *running, in *process.ProcessInput) error {
	t.Helper()
	_, err := b.Process().SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: p.sel(), Input: in}))
	return err
}

func stdin(s string) *process.ProcessInput {
	return &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(s)}}
}

func ptyIn(s string) *process.ProcessInput {
	return &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(s)}}
}

func sh(script string) *process.ProcessConfig {
	return &process.ProcessConfig{Cmd: "sh", Args: []string{"-c", script}}
}

func wantCode(t *testing.T, err error, want connect.Code) {
	t.Helper()
	if connect.CodeOf(err) != want {
		t.Errorf("got %v, want code %v", err, want)
	}
}

func TestStdinRoundTrip(t *testing.T) {
	b := startAgent(t)
	p := b.start(t, &process.StartRequest{Process: sh("while read l; do echo got $l; done; echo eof")})
	for _, line := range []string{"a", "b"} {
		if err := b.send(t, p, stdin(line+"\n")); err != nil {
			t.Fatal(err)
		}
		p.until("got " + line + "\n")
	}
	closeStdin := func() error {
		_, err := b.Process().CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: p.sel()}))
		return err
	}
	if err := closeStdin(); err != nil {
		t.Fatal(err)
	}
	if out, end := p.end(); out != "eof\n" || end.GetExitCode() != 0 || !end.GetExited() {
		t.Errorf("got %q, %v", out, end)
	}
	wantCode(t, closeStdin(), connect.CodeNotFound)
}

func TestStreamInput(t *testing.T) {
	b := startAgent(t)
	p := b.start(t, &process.StartRequest{Process: sh("read a; read b; echo $b$a")})
	in := b.Process().StreamInput(t.Context())
	for _, m := range []*process.StreamInputRequest{
		{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: p.sel()}}},
		{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: stdin("1\n")}}},
		{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}},
		{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: stdin("2\n")}}},
	} {
		if err := in.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	if out, _ := p.end(); out != "21\n" {
		t.Errorf("got %q", out)
	}
}

func TestInputToWhatTakesNone(t *testing.T) {
	b := startAgent(t)
	no := false
	p := b.start(t, &process.StartRequest{Process: sh("sleep 100"), Stdin: &no})
	wantCode(t, b.send(t, p, stdin("x")), connect.CodeInternal)
	wantCode(t, b.send(t, p, ptyIn("x")), connect.CodeInternal)
	wantCode(t, b.send(t, p, nil), connect.CodeUnimplemented)
	_, err := b.Process().Update(t.Context(), connect.NewRequest(&process.UpdateRequest{Process: p.sel(), Pty: &process.PTY{}}))
	wantCode(t, err, connect.CodeFailedPrecondition)
}

func TestTerminal(t *testing.T) {
	b := startAgent(t)
	size := func(cols, rows uint32) *process.PTY {
		return &process.PTY{Size: &process.PTY_Size{Cols: cols, Rows: rows}}
	}
	p := b.start(t, &process.StartRequest{Process: sh("stty size; tty; read x; stty size; echo done $x"), Pty: size(80, 24)})
	if out := p.until("/dev/pts/"); !strings.Contains(out, "24 80") {
		t.Errorf("got %q", out)
	}
	if _, err := b.Process().Update(t.Context(), connect.NewRequest(&process.UpdateRequest{Process: p.sel(), Pty: size(132, 50)})); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.send(t, p, stdin("x")), connect.CodeInternal)
	_, err := b.Process().CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: p.sel()}))
	wantCode(t, err, connect.CodeFailedPrecondition)
	if err := b.send(t, p, ptyIn("well\n")); err != nil {
		t.Fatal(err)
	}
	out, end := p.end()
	if !strings.Contains(out, "50 132") || !strings.Contains(out, "done well") || end.GetExitCode() != 0 {
		t.Errorf("got %q, %v", out, end)
	}
}

func TestListAndConnect(t *testing.T) {
	b := startAgent(t)
	tag := "mine"
	cfg := sh("read x; echo now $x; exit 4")
	p := b.start(t, &process.StartRequest{Process: cfg, Tag: &tag})
	l, err := b.Process().List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	if err != nil || len(l.Msg.GetProcesses()) != 1 {
		t.Fatalf("got %v, %v", l, err)
	}
	if i := l.Msg.GetProcesses()[0]; i.GetPid() != p.pid || i.GetTag() != tag || i.GetConfig().GetArgs()[1] != cfg.Args[1] {
		t.Errorf("got %v", i)
	}
	byTag := &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}
	second, err := b.Process().Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: byTag}))
	if err != nil {
		t.Fatal(err)
	}
	if !second.Receive() || second.Msg().GetEvent().GetStart().GetPid() != p.pid {
		t.Fatalf("got %v, %v", second.Msg(), second.Err())
	}
	if err := b.send(t, p, stdin("here\n")); err != nil {
		t.Fatal(err)
	}
	var out string
	var end *process.ProcessEvent_EndEvent
	done := make(chan struct{})
	go func() {
		defer close(done)
		for second.Receive() {
			out += string(second.Msg().GetEvent().GetData().GetStdout())
			end = second.Msg().GetEvent().GetEnd()
		}
	}()
	first, firstEnd := p.end()
	<-done
	if first != "now here\n" || out != first || end.GetExitCode() != 4 || firstEnd.GetExitCode() != 4 {
		t.Errorf("got %q %v and %q %v", first, firstEnd, out, end)
	}
	// A late client still gets the end.
	late, err := b.Process().Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: p.sel()}))
	if err != nil {
		t.Fatal(err)
	}
	if !late.Receive() || late.Msg().GetEvent().GetStart() == nil || !late.Receive() || late.Msg().GetEvent().GetEnd().GetExitCode() != 4 {
		t.Errorf("got %v, %v", late.Msg(), late.Err())
	}
}

// A second viewer that does not read must not freeze the command for the first.
func TestAStalledViewerDoesNotFreezeTheCommand(t *testing.T) {
	b := startAgent(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p := b.start(t, &process.StartRequest{Process: sh("read x; head -c 33554432 /dev/zero; echo end")})
	stalled, err := b.Process().Connect(ctx, connect.NewRequest(&process.ConnectRequest{Process: p.sel()}))
	if err != nil || !stalled.Receive() {
		t.Fatalf("got %v, %v", err, stalled.Err())
	}
	defer context.AfterFunc(ctx, p.cancel)() // a blocked command ends the test
	if err := b.send(t, p, stdin("go\n")); err != nil {
		t.Fatal(err)
	}
	out, end := p.end()
	if len(out) != 32<<20+4 || end.GetExitCode() != 0 {
		t.Errorf("got %d bytes, %v", len(out), end)
	}
	var seen, lost int64
	for stalled.Receive() {
		ev := stalled.Msg().GetEvent()
		seen += int64(len(ev.GetData().GetStdout()))
		lost += ev.GetKeepalive().GetOutputDropped()
	}
	if lost == 0 || seen+lost != int64(len(out)) {
		t.Errorf("the stalled viewer has %d bytes and a loss of %d, of %d", seen, lost, len(out))
	}
}

func TestConnectToUnknown(t *testing.T) {
	b := startAgent(t)
	for _, sel := range []*process.ProcessSelector{
		nil, {}, {Selector: &process.ProcessSelector_Pid{Pid: 1 << 30}}, {Selector: &process.ProcessSelector_Tag{Tag: "none"}},
	} {
		s, err := b.Process().Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: sel}))
		if err != nil {
			t.Fatal(err)
		}
		if s.Receive() {
			t.Errorf("got %v", s.Msg())
		}
		wantCode(t, s.Err(), connect.CodeNotFound)
		_, err = b.Process().SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: sel, Signal: process.Signal_SIGNAL_SIGKILL}))
		wantCode(t, err, connect.CodeNotFound)
	}
}

func TestSignals(t *testing.T) {
	b := startAgent(t)
	signal := func(p *running, s process.Signal) error {
		_, err := b.Process().SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: p.sel(), Signal: s}))
		return err
	}
	p := b.start(t, &process.StartRequest{Process: sh("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done")})
	p.until("up")
	for _, n := range []process.Signal{0, -9, 65, 1 << 30} {
		wantCode(t, signal(p, n), connect.CodeUnimplemented)
	}
	if err := signal(p, process.Signal_SIGNAL_SIGTERM); err != nil {
		t.Fatal(err)
	}
	if out, end := p.end(); !strings.Contains(out, "bye\n") || end.GetExitCode() != 5 {
		t.Errorf("got %q, %v", out, end)
	}
	p = b.start(t, &process.StartRequest{Process: sh("trap 'exit 6' QUIT; echo up; while :; do sleep 0.05; done")})
	p.until("up")
	if err := signal(p, process.Signal(3)); err != nil {
		t.Fatal(err)
	}
	if out, end := p.end(); end.GetExitCode() != 6 {
		t.Errorf("after SIGQUIT: got %q, %v", out, end)
	}
	p = b.start(t, &process.StartRequest{Process: sh("echo up; sleep 100; true")})
	p.until("up")
	if err := signal(p, process.Signal(37)); err != nil { // SIGRTMIN+3
		t.Fatal(err)
	}
	if out, end := p.end(); end.GetExited() || !strings.Contains(end.GetStatus(), "signal") {
		t.Errorf("after a real-time signal: got %q, %v", out, end)
	}
	p = b.start(t, &process.StartRequest{Process: sh("echo up; sleep 100; true")})
	p.until("up")
	if err := signal(p, process.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(int(p.pid), 0); err != unix.ESRCH {
		t.Errorf("when the kill is answered it is there: %v", err)
	}
	if _, end := p.end(); end.GetExitCode() != -1 || end.GetExited() || end.GetStatus() != "signal: killed" || end.GetError() != "signal: killed" {
		t.Errorf("got %v", end)
	}
}

func TestProcessOutlivesItsCaller(t *testing.T) {
	b := startAgent(t)
	p := b.start(t, &process.StartRequest{Process: sh("read x; exit 6")})
	p.cancel()
	for p.stream.Receive() {
	}
	s, err := b.Process().Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: p.sel()}))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Receive() {
		t.Fatal(s.Err())
	}
	if err := b.send(t, p, stdin("go\n")); err != nil {
		t.Fatal(err)
	}
	if !s.Receive() || s.Msg().GetEvent().GetEnd().GetExitCode() != 6 {
		t.Errorf("got %v, %v", s.Msg(), s.Err())
	}
}

func TestDeadlineEndsStreamAndProcess(t *testing.T) {
	b := startAgent(t)
	p := b.start(t, &process.StartRequest{Process: sh("sleep 100")}, "Connect-Timeout-Ms", "300")
	for p.stream.Receive() {
	}
	wantCode(t, p.stream.Err(), connect.CodeDeadlineExceeded)
	waitGone(t, int(p.pid))
}

func TestKeepalive(t *testing.T) {
	b := startAgent(t)
	p := b.start(t, &process.StartRequest{Process: sh("sleep 100")}, agentproto.HeaderKeepalive, "1")
	if !p.stream.Receive() || p.stream.Msg().GetEvent().GetKeepalive() == nil {
		t.Errorf("got %v, %v", p.stream.Msg(), p.stream.Err())
	}
}

// Processes left running by a command do not keep its caller waiting, and do not end for lack of a
// reader.
func TestBackgroundChildLivesOn(t *testing.T) {
	b := startAgent(t)
	ticks := filepath.Join(t.TempDir(), "ticks")
	began := time.Now()
	p := b.start(t, &process.StartRequest{Process: sh("(i=0; while :; do sleep 0.05; echo tick; i=$((i+1)); echo $i > " + ticks + "; done) & echo $!")})
	pid := strings.Fields(p.until("\n"))[0]
	if _, end := p.end(); end.GetExitCode() != 0 {
		t.Errorf("got %v", end)
	}
	if time.Since(began) > 20*time.Second {
		t.Error("the end waited for the background child")
	}
	count := func() int {
		s, _ := os.ReadFile(ticks)
		n, _ := strconv.Atoi(strings.TrimSpace(string(s)))
		return n
	}
	// It keeps writing; a broken pipe would end it.
	for from, deadline := count(), time.Now().Add(20*time.Second); count() < from+3; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the background child wrote %d times, then no more", count())
		}
	}
	res, err := b.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"kill", pid}})
	if err != nil || res.ExitCode != 0 {
		t.Errorf("the background child is gone: %+v, %v", res, err)
	}
}

// E2B's clients use JSON in their own form.
func TestJSONOnTheWire(t *testing.T) {
	b := startAgent(t)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://agent/filesystem.Filesystem/Stat", strings.NewReader(`{"path":"/usr","unknown":1}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Connect-Protocol-Version", "1")
	req.Header.Set("Accept-Encoding", "gzip, deflate")
	resp, err := b.HTTP().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Encoding") != "" || !strings.Contains(string(body), `"FILE_TYPE_DIRECTORY"`) {
		t.Errorf("got %s %s", resp.Status, body)
	}
}

func TestAProcessHasTheTraceOfItsRequest(t *testing.T) {
	b := startAgent(t)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, c := range map[string]struct {
		header, env, want string
	}{
		"of the request":       {parent, "", parent + " a=1"},
		"set by the caller":    {parent, "mine", "mine "},
		"of an invalid header": {parent + "x", "", " "},
	} {
		for kind, pty := range map[string]*process.PTY{"": nil, ", with a terminal": {}} {
			t.Run(name+kind, func(t *testing.T) {
				cfg := sh(`echo "[$TRACEPARENT $TRACESTATE]"; sleep 1000`)
				if c.env != "" {
					cfg.Envs = map[string]string{"TRACEPARENT": c.env}
				}
				p := b.start(t, &process.StartRequest{Process: cfg, Pty: pty}, "traceparent", c.header, "tracestate", "a=1")
				p.until("[" + c.want + "]")
			})
		}
	}
}
