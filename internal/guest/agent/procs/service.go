package procs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/account"
	"github.com/forkd/forkd/internal/guest/agent/command"
	"github.com/forkd/forkd/internal/guest/agent/generation"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
	"github.com/forkd/forkd/internal/leaf/stopsignal"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

// defaultKeepalive is the default idle time before a keepalive message.
const defaultKeepalive = 90 * time.Second

var _ processconnect.ProcessHandler = (*Table)(nil)

// List implements process.Process.
func (t *Table) List(context.Context,
	*connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	return connect.NewResponse(&process.ListResponse{Processes: t.list()}), nil
}

// Start implements process.Process.
func (t *Table) Start(ctx context.Context, req *connect.Request[process.StartRequest],
	stream *connect.ServerStream[process.StartResponse]) error {
	u, err := account.Lookup(account.FromHeader(req.Header(), t.rec.User()))
	if err != nil {
		return connect.NewError(connect.CodeUnauthenticated, err)
	}
	cfg := req.Msg.GetProcess()
	spec := command.Spec{Program: cfg.GetCmd(), Args: cfg.GetArgs(), Cwd: cfg.GetCwd(),
		Env: tracecontext.FromHeader(req.Header()).AddTo(cfg.GetEnvs())}
	cmd, err := command.New(spec, u, t.rec)
	if err != nil {
		return t.broken.Explain(connect.NewError(connect.CodeInvalidArgument, err))
	}
	info := &process.ProcessInfo{Config: cfg, Tag: req.Msg.Tag}
	before := t.oom.Mark()
	p, outs, err := t.start(cmd, info, req.Msg.GetPty(), req.Msg.Stdin == nil || req.Msg.GetStdin())
	if err != nil {
		return t.broken.Explain(startError(cfg.GetCmd(), err))
	}
	p.killed = func() string { return killedBy(t.oom.Since(before), p.child.Pid, t.others(p)) }
	sub, _ := p.hub.subscribe() // before the first output
	sub.owner = true
	defer p.hub.leave(sub, false)
	if err := t.add(ctx, p, outs); err != nil {
		return err
	}
	if req.Header().Get(agentproto.HeaderKillOnDisconnect) != "" {
		defer context.AfterFunc(ctx, func() { p.killWithCaller(ctx) })()
	}
	send := func(ev *process.ProcessEvent) error { return stream.Send(&process.StartResponse{Event: ev}) }
	err = follow(ctx, p, sub, keepalive(req.Header()), send)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		p.killTree() // follow has left the hub: later output is not needed
		waitBriefly(p)
	}
	return err
}

// killWithCaller kills a process that is tied to its caller. In a clone the process continues,
// because its caller belongs to the source and has not left. A caller also disconnects after the
// end of the process: background processes then stay, as on any machine.
func (p *Process) killWithCaller(ctx context.Context) {
	if !generation.Changed(ctx) && !p.child.HasEnded() {
		p.killTree()
	}
}

// waitBriefly gives a killed process the time to end.
func waitBriefly(p *Process) {
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	select {
	case <-p.child.Done():
	case <-limit.C:
	}
}

// startError distinguishes a mistake of the caller from a failure of the guest.
func startError(name string, err error) error {
	if errors.Is(err, unix.E2BIG) {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("start '%s': %s", name, command.TooLong))
	}
	for _, theirs := range []error{unix.ENOENT, unix.ENOEXEC, unix.EACCES, unix.ENOTDIR, unix.EINVAL} {
		if errors.Is(err, theirs) {
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("start '%s': %w", name, err))
		}
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("start '%s': %w", name, err))
}

// Connect implements process.Process.
func (t *Table) Connect(ctx context.Context, req *connect.Request[process.ConnectRequest],
	stream *connect.ServerStream[process.ConnectResponse]) error {
	p, err := t.find(req.Msg.GetProcess())
	if err != nil {
		return err
	}
	send := func(ev *process.ProcessEvent) error { return stream.Send(&process.ConnectResponse{Event: ev}) }
	sub, end := p.hub.subscribe()
	if sub.missed != nil && sub.missed.dropped > 0 {
		stream.ResponseHeader().Set(agentproto.HeaderOutputDropped, strconv.FormatInt(sub.missed.dropped, 10))
	}
	if end != nil {
		if err := begin(p, sub, send); err != nil {
			return err
		}
		return send(end)
	}
	return follow(ctx, p, sub, keepalive(req.Header()), send)
}

// begin sends the start event and the output kept for this subscriber.
func begin(p *Process, sub *subscriber, send func(*process.ProcessEvent) error) error {
	if err := send(startEvent(p.info.GetPid())); err != nil || sub.missed == nil {
		return err
	}
	for _, m := range sub.missed.pieces {
		if err := send(dataEvent(m.from, m.b)); err != nil {
			return err
		}
	}
	sub.missed = nil
	return nil
}

// follow sends the start event and the subscriber's events until the end. Then it removes the
// subscriber.
func follow(ctx context.Context, p *Process, sub *subscriber, idle time.Duration,
	send func(*process.ProcessEvent) error) error {
	letGo := func() { p.hub.leave(sub, generation.Changed(ctx)) }
	defer letGo()
	// A caller that leaves during Send must not block the process.
	defer context.AfterFunc(ctx, letGo)()
	if err := begin(p, sub, send); err != nil {
		return err
	}
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		select {
		case <-sub.ready:
			if done, err := p.hub.forward(sub, send); done || err != nil {
				return err
			}
		case <-timer.C:
			if err := send(keepaliveEvent()); err != nil {
				return err
			}
		case <-ctx.Done():
			return contextError(ctx)
		}
		timer.Reset(idle)
	}
}

// forward sends all queued events of s and reports whether the end was among them.
func (h *hub) forward(s *subscriber, send func(*process.ProcessEvent) error) (done bool, err error) {
	for ev := h.take(s); ev != nil; ev = h.take(s) {
		if err := send(ev); err != nil {
			return false, err
		}
		if ev.GetEnd() != nil {
			return true, nil
		}
	}
	return false, nil
}

func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the process ran into its timeout"))
	}
	return connect.NewError(connect.CodeCanceled, ctx.Err())
}

func keepalive(h http.Header) time.Duration {
	s, err := strconv.Atoi(h.Get(agentproto.HeaderKeepalive))
	if err != nil || s <= 0 || s > 3600 {
		return defaultKeepalive
	}
	return time.Duration(s) * time.Second
}

// Update implements process.Process.
func (t *Table) Update(_ context.Context,
	req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	p, err := t.findLive(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if req.Msg.GetPty() != nil {
		if p.pty == nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no terminal"))
		}
		if err := p.resize(req.Msg.GetPty()); err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// SendSignal implements process.Process.
func (t *Table) SendSignal(_ context.Context,
	req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	p, err := t.findLive(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	switch n := req.Msg.GetSignal(); {
	case n == process.Signal_SIGNAL_SIGKILL:
		p.killTree()
		waitBriefly(p) // the next request must find it gone and not a zombie
	case n >= 1 && n <= stopsignal.Max:
		// Signal the group, because a shell alone would leave its command running.
		err = p.child.SignalGroup(unix.Signal(n))
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("signal %d is not supported: want 1 to %d", n,
			stopsignal.Max))
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil, notFound(req.Msg.GetProcess())
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}
