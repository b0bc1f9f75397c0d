// Package execclient runs one program in a guest through the agent's process service. It starts the
// program, feeds its input, passes on its output, follows the size of its terminal, and reports its
// end. It calls the service in the right order but knows no daemon, sandbox or error table. Its
// users are the client, the daemon's agentclient and the appliance's shell.
//
// A blocking Read of Stdin cannot be cancelled, so Run does not wait for it unless StdinEnds is
// set.
package execclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
)

// ErrNoEnd is the error if the stream ended without an exit status: the guest is gone.
var ErrNoEnd = errors.New("the stream ended without an exit status")

// inputChunk is the amount of Stdin in one message. It fits a pipe's buffer, so short inputs never
// wait.
const inputChunk = 32 << 10

// endOfTransmission is Ctrl-D, because the input of a terminal cannot be closed.
const endOfTransmission = 4

// Size is the size of a terminal.
type Size struct {
	Cols, Rows uint16 // in characters
}

// Session is a program to run, with its streams.
type Session struct {
	Process processconnect.ProcessClient // the client of the guest's agent
	Header  http.Header                  // of the start request: the user, a time limit

	Args []string          // program and arguments; must not be empty
	Env  map[string]string // overrides the guest's defaults
	Cwd  string            // if empty, the guest's default

	// Stdin is read to its end. If nil, the program gets no input.
	Stdin io.Reader
	// StdinEnds promises that no Read of Stdin blocks. Run then waits for the last Read.
	StdinEnds bool
	// Stdout and Stderr receive each chunk when it arrives. On a terminal, all output goes to
	// Stdout. They may block; the program then waits. If nil, the output is dropped.
	Stdout, Stderr func(chunk []byte) error

	Terminal *Size                 // if set, the program runs on a terminal of this size
	Resize   <-chan Size           // new sizes of the terminal; closed by the caller
	Signals  <-chan syscall.Signal // by Linux numbers; SIGKILL also kills all processes the program started

	Started func(pid uint32) // may be nil

	// Outlive lets the program go on when ctx ends or the connection breaks. Otherwise the agent
	// kills it with all its descendants.
	Outlive bool
}

// Run runs the program to its end. If ctx ends or the connection breaks, the program and all its
// descendants are killed, unless Outlive is set. Run returns the transport's errors unchanged.
func (s *Session) Run(ctx context.Context) (End, error) {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	stream, err := s.Process.Start(ctx, s.request())
	if err != nil {
		return End{}, err
	}
	defer stream.Close()
	var order Order
	for stream.Receive() {
		ev := stream.Msg().GetEvent()
		if err := order.Check(ev, time.Now()); err != nil {
			return End{}, err
		}
		if start := ev.GetStart(); start != nil {
			s.started(ctx, &helpers, start.GetPid())
		}
		if err := errors.Join(s.noteLoss(ev), s.output(ev.GetData())); err != nil {
			return End{}, err
		}
		if end := ev.GetEnd(); end != nil {
			return End{end}, last(stream, cancel)
		}
	}
	if err := stream.Err(); err != nil {
		return End{}, err
	}
	return End{}, ErrNoEnd
}

// noteLoss writes to Stderr if output is missing at this point, because another reader was faster.
func (s *Session) noteLoss(ev *process.ProcessEvent) error {
	n := ev.GetKeepalive().GetOutputDropped()
	if n <= 0 || s.Stderr == nil {
		return nil
	}
	return s.Stderr(fmt.Appendf(nil, "forkd: %d bytes of output are missing here: another reader was faster\n", n))
}

// endGrace is how long the stream may stay open after the end of its program.
const endGrace = time.Second

// last waits for the end of the stream and returns an error if another event comes before it. The
// exit status is known by then, so a broken or endless stream is no error.
func last(stream *connect.ServerStreamForClient[process.StartResponse], cancel func()) error {
	defer time.AfterFunc(endGrace, cancel).Stop()
	if stream.Receive() {
		return errAfterEnd
	}
	var broke *agentproto.Violation
	if err := stream.Err(); errors.As(err, &broke) {
		return err
	}
	return nil
}

func (s *Session) request() *connect.Request[process.StartRequest] {
	input := s.Stdin != nil
	msg := &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: s.Args[0], Args: s.Args[1:], Envs: s.Env},
		Stdin:   &input,
	}
	if s.Cwd != "" {
		msg.Process.Cwd = &s.Cwd
	}
	if s.Terminal != nil {
		msg.Pty = ptySize(*s.Terminal)
	}
	r := connect.NewRequest(msg)
	for name, values := range s.Header {
		r.Header()[name] = values
	}
	if !s.Outlive {
		r.Header().Set(agentproto.HeaderKillOnDisconnect, "1")
	}
	return r
}

func ptySize(s Size) *process.PTY {
	return &process.PTY{Size: &process.PTY_Size{Cols: uint32(s.Cols), Rows: uint32(s.Rows)}}
}

// started starts the goroutines that send input to the program. They run beside the loop over the
// output, because a program may write before it has read all input.
func (s *Session) started(ctx context.Context, helpers *sync.WaitGroup, pid uint32) {
	if s.Started != nil {
		s.Started(pid)
	}
	who := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
	switch {
	case s.Stdin == nil:
	case s.StdinEnds:
		helpers.Go(func() { s.feed(ctx, who) })
	default:
		go s.feed(ctx, who)
	}
	helpers.Go(func() { s.control(ctx, who) })
}

// output passes on one chunk.
func (s *Session) output(data *process.ProcessEvent_DataEvent) error {
	for _, out := range []struct {
		to    func([]byte) error
		bytes []byte
	}{{s.Stdout, data.GetStdout()}, {s.Stderr, data.GetStderr()}, {s.Stdout, data.GetPty()}} {
		if len(out.bytes) == 0 || out.to == nil {
			continue
		}
		if err := out.to(out.bytes); err != nil {
			return err
		}
	}
	return nil
}

// control passes on sizes and signals until ctx ends. It ignores failures: then the program is
// gone, and the stream reports this better.
func (s *Session) control(ctx context.Context, who *process.ProcessSelector) {
	resize, signals := s.Resize, s.Signals
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			limited(ctx, func(ctx context.Context) {
				_, _ = s.Process.Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: who, Pty: ptySize(size)}))
			})
		case sig, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			limited(ctx, func(ctx context.Context) { s.signal(ctx, who, process.Signal(sig)) })
		}
	}
}

// signal sends a signal. An older agent knows SIGTERM and SIGKILL only, and gets SIGTERM for another one.
func (s *Session) signal(ctx context.Context, who *process.ProcessSelector, sig process.Signal) {
	_, err := s.Process.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{Process: who, Signal: sig}))
	if connect.CodeOf(err) == connect.CodeUnimplemented && sig != process.Signal_SIGNAL_SIGTERM {
		s.signal(ctx, who, process.Signal_SIGNAL_SIGTERM)
	}
}

// controlLimit limits one change of the terminal's size and one signal. An unanswered call must not
// block the next.
const controlLimit = 10 * time.Second

func limited(ctx context.Context, call func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, controlLimit)
	defer cancel()
	call(ctx)
}

// feed streams Stdin to the program and closes its input. It ignores errors: either the program no
// longer reads, or the guest is gone, and the stream reports this.
func (s *Session) feed(ctx context.Context, who *process.ProcessSelector) {
	in := s.Process.StreamInput(ctx)
	err := in.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{
		Start: &process.StreamInputRequest_StartEvent{Process: who},
	}})
	buf := make([]byte, inputChunk)
	for err == nil {
		var n int
		n, err = s.Stdin.Read(buf)
		if n == 0 {
			continue
		}
		if sendErr := in.Send(s.input(buf[:n])); sendErr != nil {
			err = sendErr
		}
	}
	if s.Terminal != nil && errors.Is(err, io.EOF) {
		_ = in.Send(s.input([]byte{endOfTransmission}))
	}
	_, _ = in.CloseAndReceive()
	if s.Terminal == nil {
		_, _ = s.Process.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: who}))
	}
}

func (s *Session) input(b []byte) *process.StreamInputRequest {
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: b}}
	if s.Terminal != nil {
		in.Input = &process.ProcessInput_Pty{Pty: b}
	}
	return &process.StreamInputRequest{Event: &process.StreamInputRequest_Data{
		Data: &process.StreamInputRequest_DataEvent{Input: in},
	}}
}
