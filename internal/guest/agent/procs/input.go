package procs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// SendInput implements process.Process. It returns when the process has room for all of the input,
// or when the caller's context ends.
func (t *Table) SendInput(ctx context.Context,
	req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	p, err := t.findLive(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if err := p.input(ctx, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

// StreamInput implements process.Process. The first message names the process, the others contain
// input.
func (t *Table) StreamInput(ctx context.Context,
	stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	var p *Process
	for stream.Receive() {
		msg := stream.Msg()
		var err error
		switch {
		case msg.GetStart() != nil:
			p, err = t.findLive(msg.GetStart().GetProcess())
		case msg.GetData() != nil && p == nil:
			err = connect.NewError(connect.CodeInvalidArgument, errors.New("input came before its process was named"))
		case msg.GetData() != nil:
			err = p.input(ctx, msg.GetData().GetInput())
		}
		if err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

// CloseStdin implements process.Process.
func (t *Table) CloseStdin(_ context.Context,
	req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	p, err := t.findLive(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if p.pty != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition,
			errors.New("a terminal's input cannot be closed: send Ctrl-D"))
	}
	if p.stdin != nil {
		_ = p.stdin.Close() // closing twice is harmless
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}

func (p *Process) input(ctx context.Context, in *process.ProcessInput) error {
	switch in := in.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		if p.stdin == nil {
			return connect.NewError(connect.CodeInternal, errors.New("stdin is not open for this process"))
		}
		return p.write(ctx, p.stdin, in.Stdin)
	case *process.ProcessInput_Pty:
		if p.pty == nil {
			return connect.NewError(connect.CodeInternal, errors.New("the process has no terminal"))
		}
		return p.write(ctx, p.pty, in.Pty)
	}
	return connect.NewError(connect.CodeUnimplemented, errors.New("the request holds no input"))
}

func (p *Process) write(ctx context.Context, f *os.File, b []byte) error {
	p.inMu.Lock()
	defer p.inMu.Unlock()
	if err := f.SetWriteDeadline(time.Time{}); err == nil {
		defer context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Now()) })()
	}
	n, err := f.Write(b)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("the process took %d of %d bytes", n, len(b)))
	case errors.Is(err, os.ErrClosed):
		err = io.ErrClosedPipe
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("write input: %w", err))
}
