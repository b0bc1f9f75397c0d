package fakeengine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/process"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
	"github.com/forkd/forkd/internal/leaf/initprogram"
)

// processes is the fake guest's process service.
type processes struct {
	processconnect.UnimplementedProcessHandler
	ctx context.Context
	env map[string]string

	mu      sync.Mutex // guards the fields below
	running map[uint32]*running
	lastPID uint32
}

type running struct {
	stdin  *io.PipeWriter
	signal context.CancelFunc
	got    chan int // numbers of the signals it got
	sizes  chan [2]uint32

	handles bool // signals other than SIGKILL do not end it
}

func (s *processes) Start(ctx context.Context, req *connect.Request[process.StartRequest],
	stream *connect.ServerStream[process.StartResponse]) error {
	cfg := req.Msg.GetProcess()
	run, ok := programs()[cfg.GetCmd()]
	if !ok {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("command '%s' not found", cfg.GetCmd()))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	stdin, feed := io.Pipe()
	defer stdin.Close()
	if req.Msg.Stdin != nil && !req.Msg.GetStdin() && req.Msg.GetPty() == nil {
		feed.Close()
	}
	// A fake program ends when its input breaks. A signal has the same effect.
	defer context.AfterFunc(ctx, func() { stdin.CloseWithError(io.EOF) })()
	r := &running{stdin: feed, signal: cancel, got: make(chan int, 8), sizes: make(chan [2]uint32, 8)}
	r.handles = cfg.GetCmd() == "server" || cfg.GetCmd() == initprogram.Runner
	pid := s.add(r)
	defer s.remove(pid)
	out := &events{stream: stream}
	started := &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}
	if err := out.send(&process.ProcessEvent{Event: started}); err != nil {
		return err
	}
	if size := req.Msg.GetPty().GetSize(); size != nil {
		r.sizes <- [2]uint32{size.GetCols(), size.GetRows()}
	}
	p := &proc{
		ctx: ctx, args: cfg.GetArgs(), env: merged(s.env, cfg.GetEnvs()), cwd: cfg.GetCwd(), stdin: stdin,
		pty: req.Msg.GetPty() != nil, sizes: r.sizes, signals: r.got,
		stdout: chunks{out, "stdout"}, stderr: chunks{out, "stderr"},
	}
	p.user, _, _ = basicAuth(req.Header().Get("Authorization"))
	if p.pty {
		p.stdout, p.stderr = chunks{out, "pty"}, chunks{out, "pty"}
	}
	code := run(p)
	end := &process.ProcessEvent_EndEvent{ExitCode: int32(code), Exited: true, Status: fmt.Sprintf("exit status %d", code)}
	if ctx.Err() != nil {
		end = &process.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: terminated"}
		if r.handles {
			end.Status = "signal: killed"
		}
	}
	return out.send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
}

func (s *processes) add(r *running) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastPID++
	s.running[s.lastPID] = r
	return s.lastPID
}

func (s *processes) remove(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, pid)
}

func (s *processes) find(sel *process.ProcessSelector) (*running, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.running[sel.GetPid()]; ok {
		return r, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, errors.New("no such process"))
}

func (s *processes) StreamInput(_ context.Context,
	in *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	var r *running
	for in.Receive() {
		msg := in.Msg()
		if start := msg.GetStart(); start != nil {
			var err error
			if r, err = s.find(start.GetProcess()); err != nil {
				return nil, err
			}
		}
		data := msg.GetData().GetInput()
		if r == nil || data == nil {
			continue
		}
		if _, err := r.stdin.Write(append(data.GetStdin(), data.GetPty()...)); err != nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
	}
	return connect.NewResponse(&process.StreamInputResponse{}), in.Err()
}

func (s *processes) SendInput(_ context.Context,
	req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	r, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	in := req.Msg.GetInput()
	if _, err := r.stdin.Write(append(in.GetStdin(), in.GetPty()...)); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

func (s *processes) CloseStdin(_ context.Context,
	req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	r, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), r.stdin.Close()
}

func (s *processes) SendSignal(_ context.Context,
	req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	r, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	n := req.Msg.GetSignal()
	if r.handles && n != process.Signal_SIGNAL_SIGKILL {
		r.got <- int(n)
	} else {
		r.signal()
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

func (s *processes) Update(_ context.Context,
	req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	r, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	size := req.Msg.GetPty().GetSize()
	r.sizes <- [2]uint32{size.GetCols(), size.GetRows()}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// events serialises the output of a program.
type events struct {
	mu     sync.Mutex // guards stream, whose Send is not safe for concurrent use
	stream *connect.ServerStream[process.StartResponse]
}

func (e *events) send(ev *process.ProcessEvent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stream.Send(&process.StartResponse{Event: ev})
}

// chunks is one output stream of a program.
type chunks struct {
	to   *events
	name string
}

func (c chunks) Write(b []byte) (int, error) {
	data := &process.ProcessEvent_DataEvent{}
	switch b := append([]byte(nil), b...); c.name {
	case "stdout":
		data.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: b}
	case "stderr":
		data.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: b}
	default:
		data.Output = &process.ProcessEvent_DataEvent_Pty{Pty: b}
	}
	return len(b), c.to.send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}})
}
