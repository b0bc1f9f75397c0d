package enginefake

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/process"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
)

type fakeProcess struct {
	processconnect.UnimplementedProcessHandler
	f *fake
}

func (p *fakeProcess) Start(
	ctx context.Context, r *connect.Request[process.StartRequest], s *connect.ServerStream[process.StartResponse],
) error {
	send := func(e *process.ProcessEvent) error { return s.Send(&process.StartResponse{Event: e}) }
	end := &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}
	known := []string{"echo", "/bin/sh", "sh", "segv", "hang"}
	if cmd := r.Msg.GetProcess().GetCmd(); !slices.Contains(known, cmd) {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("no such program: %s", cmd))
	}
	start := &process.ProcessEvent_StartEvent{Pid: 7}
	if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: start}}); err != nil {
		return err
	}
	switch r.Msg.GetProcess().GetCmd() {
	case "echo":
		text := &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(strings.Join(r.Msg.GetProcess().GetArgs(), " "))}
		data := &process.ProcessEvent_DataEvent{Output: text}
		if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}}); err != nil {
			return err
		}
	case "/bin/sh": // an image without bash
	case "sh":
		if args := r.Msg.GetProcess().GetArgs(); args[len(args)-1] == "false" {
			end = &process.ProcessEvent_EndEvent{Exited: true, ExitCode: 1, Status: "exit status 1"}
		}
	case "segv":
		end = &process.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: segmentation fault (core dumped)"}
	case "hang":
		p.f.faulty("exec-hangs") // signals the test
		<-ctx.Done()
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	}
	return send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
}
