package agentclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/agentproto"
	"github.com/forkd/forkd/internal/agentproto/process"
)

// DefaultMaxOutput bounds what Exec keeps of stdout, and of stderr.
const DefaultMaxOutput = 8 << 20

// ExecRequest is a command to run to its end.
type ExecRequest struct {
	Args []string          // program and arguments; must not be empty
	Env  map[string]string // on top of the guest's defaults
	Cwd  string            // empty: the image's working directory, or the user's home
	User string            // empty: the image's default user

	Stdin []byte // nil gives the command /dev/null

	// Timeout ends the command and everything it started; 0 means none.
	Timeout time.Duration
	// MaxOutput bounds stdout and stderr each; 0 means DefaultMaxOutput.
	MaxOutput int
	// OnOutput, when set, gets every chunk as it comes (the slice is the
	// callee's to keep). It may block: the command then waits.
	OnOutput func(stderr bool, chunk []byte)
}

// ExecResult is what became of the command.
type ExecResult struct {
	Pid            uint32
	Stdout, Stderr []byte
	// Bytes beyond the cap, read and thrown away.
	DroppedStdout, DroppedStderr int64
	ExitCode                     int    // -1 when a signal or the timeout ended it
	Status                       string // "exit status 1", "signal: killed", …
	TimedOut                     bool
}

// Exec runs a command and waits for its end. A command that fails or runs into
// its timeout is a result; an error means it could not be run or its end is
// not known. When ctx ends first, the command and everything it started is
// killed too.
func (c *Client) Exec(ctx context.Context, req ExecRequest) (ExecResult, error) {
	if len(req.Args) == 0 {
		return ExecResult{}, errors.New("exec: no command given")
	}
	// The deadline travels as a header, so that the guest can still report the
	// end; a deadline on the context would cut the stream at the same instant.
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var feeding sync.WaitGroup
	defer feeding.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	stream, err := c.process.Start(streamCtx, startRequest(req))
	if err != nil {
		return ExecResult{}, fmt.Errorf("exec %s: %w", req.Args[0], execError(ctx, err))
	}
	defer stream.Close()
	out := collector{max: req.MaxOutput, tell: req.OnOutput}
	if out.max <= 0 {
		out.max = DefaultMaxOutput
	}
	for stream.Receive() {
		ev := stream.Msg().GetEvent()
		if start := ev.GetStart(); start != nil {
			out.res.Pid = start.GetPid()
			// Beside the loop: a command may answer before it has read all.
			feeding.Go(func() { c.feed(streamCtx, out.res.Pid, req.Stdin) })
		}
		if out.take(ev) {
			return out.res, nil
		}
	}
	if connect.CodeOf(stream.Err()) == connect.CodeDeadlineExceeded && ctx.Err() == nil {
		out.res.TimedOut, out.res.ExitCode = true, -1
		out.res.Status = fmt.Sprintf("timed out after %s", req.Timeout)
		return out.res, nil
	}
	if err := stream.Err(); err != nil {
		return out.res, fmt.Errorf("exec %s: %w", req.Args[0], execError(ctx, err))
	}
	return out.res, fmt.Errorf("exec %s: the stream ended without telling the exit status", req.Args[0])
}

func startRequest(req ExecRequest) *connect.Request[process.StartRequest] {
	hasStdin := req.Stdin != nil
	msg := &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: req.Args[0], Args: req.Args[1:], Envs: req.Env},
		Stdin:   &hasStdin,
	}
	if req.Cwd != "" {
		msg.Process.Cwd = &req.Cwd
	}
	r := connect.NewRequest(msg)
	r.Header().Set(agentproto.HeaderKillOnDisconnect, "1")
	if req.Timeout > 0 {
		r.Header().Set("Connect-Timeout-Ms", strconv.FormatInt(max(1, req.Timeout.Milliseconds()), 10))
	}
	SetUser(r.Header(), req.User)
	return r
}

// SetUser chooses the guest's user for a request; empty leaves the default.
func SetUser(h http.Header, user string) {
	if user == "" {
		return
	}
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, "")
	h.Set("Authorization", r.Header.Get("Authorization"))
}

// feed writes stdin and closes it. It tells nobody when that fails: either the
// command ended without reading all of it, which is its right, or the guest is
// gone, which the stream notices.
func (c *Client) feed(ctx context.Context, pid uint32, stdin []byte) {
	if stdin == nil {
		return
	}
	sel := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
	const chunk = 32 << 10 // fits a pipe's buffer, so short inputs never wait
	for len(stdin) > 0 {
		n := min(chunk, len(stdin))
		in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: stdin[:n]}}
		if _, err := c.process.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: sel, Input: in})); err != nil {
			break
		}
		stdin = stdin[n:]
	}
	_, _ = c.process.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: sel}))
}

func execError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// collector keeps output up to a cap and counts the rest.
type collector struct {
	res  ExecResult
	max  int
	tell func(stderr bool, chunk []byte)
}

// take handles one event and reports whether it was the last.
func (c *collector) take(ev *process.ProcessEvent) bool {
	if d := ev.GetData(); d != nil {
		if b := d.GetStdout(); len(b) > 0 {
			c.add(&c.res.Stdout, &c.res.DroppedStdout, false, b)
		}
		if b := d.GetStderr(); len(b) > 0 {
			c.add(&c.res.Stderr, &c.res.DroppedStderr, true, b)
		}
	}
	end := ev.GetEnd()
	if end == nil {
		return false
	}
	c.res.ExitCode, c.res.Status = int(end.GetExitCode()), end.GetStatus()
	return true
}

func (c *collector) add(to *[]byte, dropped *int64, stderr bool, b []byte) {
	if c.tell != nil {
		c.tell(stderr, b)
	}
	keep := min(len(b), c.max-len(*to))
	*to = append(*to, b[:keep]...)
	*dropped += int64(len(b) - keep)
}
