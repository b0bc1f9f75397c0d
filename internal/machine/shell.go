package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/forkd/forkd/internal/agentproto"
	"github.com/forkd/forkd/internal/agentproto/agentclient"
	"github.com/forkd/forkd/internal/agentproto/process"
)

// Shell runs an interactive shell in the appliance on the caller's terminal and
// returns its exit code. The terminal is restored in any case.
func Shell(ctx context.Context, c *agentclient.Client, in, out *os.File) (int, error) {
	if !term.IsTerminal(int(in.Fd())) {
		return 0, fmt.Errorf("a shell needs a terminal; use `forkd machine exec` for one command")
	}
	saved, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return 0, fmt.Errorf("set the terminal raw: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), saved) }()
	s := &terminal{client: c, in: in, out: out}
	return s.run(ctx)
}

// terminal is one interactive session.
type terminal struct {
	client  *agentclient.Client
	in, out *os.File
	pid     uint32
}

func (s *terminal) run(ctx context.Context) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	stream, err := s.client.Process().Start(ctx, s.request())
	if err != nil {
		return 0, fmt.Errorf("start shell: %w", err)
	}
	defer stream.Close()
	for stream.Receive() {
		switch ev := stream.Msg().GetEvent().GetEvent().(type) {
		case *process.ProcessEvent_Start:
			s.pid = ev.Start.GetPid()
			helpers.Go(func() { s.sendResizes(ctx) })
			go s.sendInput(ctx) // a read of a terminal cannot be called off: it ends with the process
		case *process.ProcessEvent_Data:
			if _, err := s.out.Write(ev.Data.GetPty()); err != nil {
				return 0, fmt.Errorf("write to the terminal: %w", err)
			}
		case *process.ProcessEvent_End:
			return exitOf(ev.End), nil
		}
	}
	if err := stream.Err(); err != nil {
		return 0, fmt.Errorf("follow shell: %w", err)
	}
	return 0, fmt.Errorf("follow shell: the stream ended without telling the exit status")
}

func exitOf(end *process.ProcessEvent_EndEvent) int {
	if code := int(end.GetExitCode()); code >= 0 {
		return code
	}
	return killedExitCode
}

func (s *terminal) request() *connect.Request[process.StartRequest] {
	home := "/root"
	req := connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{
			Cmd: "/bin/sh", Args: []string{"-l"}, Cwd: &home,
			Envs: map[string]string{"TERM": termName(), "PS1": `\h:\w\$ `},
		},
		Pty: &process.PTY{Size: s.size()},
	})
	req.Header().Set(agentproto.HeaderKillOnDisconnect, "1")
	agentclient.SetUser(req.Header(), "root")
	return req
}

func termName() string {
	if t := os.Getenv("TERM"); t != "" && !strings.ContainsAny(t, "\x00\n") {
		return t
	}
	return "linux"
}

func (s *terminal) size() *process.PTY_Size {
	cols, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		cols, rows = 80, 24
	}
	return &process.PTY_Size{Cols: uint32(cols), Rows: uint32(rows)}
}

func (s *terminal) selector() *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: s.pid}}
}

// sendResizes follows the size of the caller's window.
func (s *terminal) sendResizes(ctx context.Context) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	defer signal.Stop(changed)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			// Best effort: the next change tries again.
			_, _ = s.client.Process().Update(ctx, connect.NewRequest(&process.UpdateRequest{
				Process: s.selector(), Pty: &process.PTY{Size: s.size()}}))
		}
	}
}

// sendInput passes keys on. When the terminal ends, the shell gets an end of file.
func (s *terminal) sendInput(ctx context.Context) {
	const endOfFile = "\x04"
	buf := make([]byte, 4096)
	for {
		n, err := s.in.Read(buf)
		data := buf[:n]
		if err == io.EOF {
			data = []byte(endOfFile)
		}
		if len(data) > 0 {
			_, sendErr := s.client.Process().SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
				Process: s.selector(), Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: data}}}))
			if sendErr != nil {
				return // the shell is gone; run tells
			}
		}
		if err != nil {
			return
		}
	}
}
