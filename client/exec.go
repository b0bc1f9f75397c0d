package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/agentproto"
	"github.com/forkd/forkd/internal/agentproto/process"
	"github.com/forkd/forkd/internal/agentproto/process/processconnect"
)

// Size is that of a terminal.
type Size struct{ Cols, Rows uint16 }

// ExecOptions is a program to run with streams.
type ExecOptions struct {
	Args []string          // program and its arguments
	Env  map[string]string // added to the guest's
	Cwd  string            // empty means the image's
	User string            // empty means the image's

	// Stdin is read until it ends; nil gives the program no input. A Read that is
	// blocked when the program ends is left to itself, as a terminal's cannot be
	// called off.
	Stdin          io.Reader
	Stdout, Stderr io.Writer // nil drops the output

	// Terminal, if not nil, runs the program on a terminal of that size. All its
	// output then goes to Stdout.
	Terminal *Size
	// Resize carries new sizes of the terminal; it is the caller's to close.
	Resize <-chan Size
	// Signals carries signals for the program: SIGKILL kills, and all others ask
	// it to terminate.
	Signals <-chan syscall.Signal
}

// ExecStatus is how a program ended.
type ExecStatus struct {
	// ExitCode is 128+n when signal n ended it.
	ExitCode int
	// Status says so in words, such as "exit status 1" or "signal: killed".
	Status string
}

// ErrNoProgram and ErrNotExecutable are wrapped by ExecStream when the program
// cannot be started.
var (
	ErrNoProgram     = errors.New("no such program in the guest")
	ErrNotExecutable = errors.New("program cannot be executed")
)

// ExecStream runs a program in a sandbox and passes its streams through. When
// ctx ends, or the connection breaks, the program and all it started are killed.
func (c *Client) ExecStream(ctx context.Context, id string, opt ExecOptions) (ExecStatus, error) {
	if len(opt.Args) == 0 {
		return ExecStatus{}, &Error{Code: api.CodeInvalid, Message: "no program to run"}
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &execSession{opt: opt, client: c.processes(id)}
	defer s.helpers.Wait()
	defer cancel()
	stream, err := s.client.Start(ctx, s.startRequest())
	if err != nil {
		return ExecStatus{}, execError(opt.Args[0], id, err)
	}
	defer stream.Close()
	for stream.Receive() {
		end, err := s.handle(ctx, stream.Msg().GetEvent())
		if err != nil {
			return ExecStatus{}, err
		}
		if end != nil {
			return statusOf(end), nil
		}
	}
	if err := stream.Err(); err != nil {
		return ExecStatus{}, execError(opt.Args[0], id, err)
	}
	return ExecStatus{}, &Error{Code: api.CodeGuestGone, Message: fmt.Sprintf("exec %s in %s: the stream ended without an exit status", opt.Args[0], id)}
}

// processes is the process service of a sandbox's agent.
func (c *Client) processes(id string) processconnect.ProcessClient {
	return processconnect.NewProcessClient(c.http, c.base+sandboxPath(id, "/agent"), agentOptions()...)
}

func agentOptions() []connect.ClientOption {
	return []connect.ClientOption{
		connect.WithAcceptCompression("gzip", nil, nil), // the guest's CPU is dearer than the wire
		connect.WithReadMaxBytes(agentproto.MaxMessageBytes),
	}
}

// execSession is one ExecStream.
type execSession struct {
	opt     ExecOptions
	client  processconnect.ProcessClient
	helpers sync.WaitGroup // everything but the reader of Stdin
}

func (s *execSession) startRequest() *connect.Request[process.StartRequest] {
	input := s.opt.Stdin != nil
	msg := &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: s.opt.Args[0], Args: s.opt.Args[1:], Envs: s.opt.Env},
		Stdin:   &input,
	}
	if s.opt.Cwd != "" {
		msg.Process.Cwd = &s.opt.Cwd
	}
	if s.opt.Terminal != nil {
		msg.Pty = ptySize(*s.opt.Terminal)
	}
	r := connect.NewRequest(msg)
	r.Header().Set(agentproto.HeaderKillOnDisconnect, "1")
	if s.opt.User != "" {
		r.Header().Set(api.HeaderAgentUser, s.opt.User)
	}
	return r
}

func ptySize(s Size) *process.PTY {
	return &process.PTY{Size: &process.PTY_Size{Cols: uint32(s.Cols), Rows: uint32(s.Rows)}}
}

// handle takes one event; the last one is returned.
func (s *execSession) handle(ctx context.Context, ev *process.ProcessEvent) (*process.ProcessEvent_EndEvent, error) {
	if start := ev.GetStart(); start != nil {
		s.started(ctx, &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: start.GetPid()}})
	}
	data := ev.GetData()
	for _, out := range []struct {
		to    io.Writer
		bytes []byte
	}{{s.opt.Stdout, data.GetStdout()}, {s.opt.Stderr, data.GetStderr()}, {s.opt.Stdout, data.GetPty()}} {
		if len(out.bytes) == 0 || out.to == nil {
			continue
		}
		if _, err := out.to.Write(out.bytes); err != nil {
			return nil, fmt.Errorf("write output: %w", err)
		}
	}
	return ev.GetEnd(), nil
}

// started begins what goes from here to the program.
func (s *execSession) started(ctx context.Context, who *process.ProcessSelector) {
	if s.opt.Stdin != nil {
		go s.feed(ctx, who)
	}
	s.helpers.Go(func() { s.control(ctx, who) })
}

// control passes on sizes and signals until ctx ends. A failure means that the
// program is gone, which the stream tells better.
func (s *execSession) control(ctx context.Context, who *process.ProcessSelector) {
	resize, signals := s.opt.Resize, s.opt.Signals
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			_, _ = s.client.Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: who, Pty: ptySize(size)}))
		case sig, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			send := process.Signal_SIGNAL_SIGTERM
			if sig == syscall.SIGKILL {
				send = process.Signal_SIGNAL_SIGKILL
			}
			_, _ = s.client.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{Process: who, Signal: send}))
		}
	}
}

// feed streams Stdin to the program and closes its input. Errors mean that the
// program no longer reads, which is its right.
func (s *execSession) feed(ctx context.Context, who *process.ProcessSelector) {
	in := s.client.StreamInput(ctx)
	err := in.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{
		Start: &process.StreamInputRequest_StartEvent{Process: who},
	}})
	buf := make([]byte, 32<<10)
	for err == nil {
		var n int
		n, err = s.opt.Stdin.Read(buf)
		if n == 0 {
			continue
		}
		if sendErr := in.Send(s.input(buf[:n])); sendErr != nil {
			err = sendErr
		}
	}
	if s.opt.Terminal != nil && errors.Is(err, io.EOF) {
		_ = in.Send(s.input([]byte{4})) // Ctrl-D: a terminal's input cannot be closed
	}
	_, _ = in.CloseAndReceive()
	if s.opt.Terminal == nil {
		_, _ = s.client.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: who}))
	}
}

func (s *execSession) input(b []byte) *process.StreamInputRequest {
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: b}}
	if s.opt.Terminal != nil {
		in.Input = &process.ProcessInput_Pty{Pty: b}
	}
	return &process.StreamInputRequest{Event: &process.StreamInputRequest_Data{
		Data: &process.StreamInputRequest_DataEvent{Input: in},
	}}
}

func statusOf(end *process.ProcessEvent_EndEvent) ExecStatus {
	st := ExecStatus{ExitCode: int(end.GetExitCode()), Status: end.GetStatus()}
	if !end.GetExited() || st.ExitCode < 0 {
		st.ExitCode = 128 + signalNumber(st.Status)
	}
	return st
}

// signalNumber finds the number in words such as "signal: killed (core
// dumped)"; unknown ones count as SIGKILL.
func signalNumber(status string) int {
	name := strings.TrimPrefix(status, "signal: ")
	for n := syscall.Signal(1); n < 32; n++ {
		if strings.HasPrefix(name, n.String()) {
			return int(n)
		}
	}
	return int(syscall.SIGKILL)
}

// execError words a failure to run a program.
func execError(program, id string, err error) error {
	err = agentError(fmt.Sprintf("exec %s in %s", program, id), err)
	var e *Error
	if errors.As(err, &e) && e.Status == 0 && e.Code == api.CodeInvalid {
		e.cause = startCause(e.Message)
	}
	return err
}

// agentError words what came back from the agent's services: the daemon's own
// errors stay, the agent's get a code.
func agentError(doing string, err error) error {
	var own *Error
	if errors.As(err, &own) {
		return fmt.Errorf("%s: %w", doing, own)
	}
	var remote *connect.Error
	switch {
	case !errors.As(err, &remote):
		return fmt.Errorf("%s: %w", doing, err)
	case remote.Code() == connect.CodeCanceled:
		return context.Canceled
	}
	return &Error{Code: connectCode(remote.Code()), Message: doing + ": " + remote.Message()}
}

// startCause tells apart, as shells do, what is not there and what cannot run;
// nil for a request that is wrong otherwise. The agent has one code for all,
// and says which in its text: command 'X' not found, command 'X': REASON.
func startCause(message string) error {
	about := strings.Contains(message, ": command '") || strings.Contains(message, ": start '")
	switch {
	case !about:
		return nil
	case strings.HasSuffix(message, "not found"), strings.Contains(message, syscall.ENOENT.Error()):
		return ErrNoProgram
	}
	return ErrNotExecutable
}

func connectCode(code connect.Code) api.Code {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeAlreadyExists, connect.CodePermissionDenied, connect.CodeFailedPrecondition:
		return api.CodeInvalid
	case connect.CodeNotFound:
		return api.CodeNotFound
	case connect.CodeUnauthenticated:
		return api.CodeUnauthorized
	case connect.CodeDeadlineExceeded:
		return api.CodeTimeout
	case connect.CodeResourceExhausted:
		return api.CodeNoSpace
	case connect.CodeUnavailable, connect.CodeAborted:
		return api.CodeGuestGone
	case connect.CodeUnimplemented:
		return api.CodeUnsupported
	}
	return api.CodeInternal
}
