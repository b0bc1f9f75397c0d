package agentclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/execclient"
)

// DefaultMaxOutput bounds what Exec keeps of stdout, and of stderr.
const DefaultMaxOutput = 8 << 20

// timeoutCode is the exit code of a command that its timeout ended, as timeout(1) has it.
const timeoutCode = 124

// ExecRequest is a command to run to its end.
type ExecRequest struct {
	Args []string          // program and arguments; must not be empty
	Env  map[string]string // on top of the guest's defaults
	Cwd  string            // empty: the image's working directory, or the user's home
	User string            // empty: the image's default user

	Stdin []byte // nil gives the command /dev/null
	// Input, when set, is read instead of Stdin until it ends. A Read that is
	// blocked when the command ends is left to itself, as a terminal's cannot be
	// called off.
	Input io.Reader

	// Timeout ends the command and everything it started; 0 means none.
	Timeout time.Duration
	// MaxOutput bounds stdout and stderr each; 0 means DefaultMaxOutput.
	MaxOutput int
	// OnOutput, when set, gets every chunk as it comes (the slice is the
	// callee's to keep). It may block: the command then waits.
	OnOutput func(stderr bool, chunk []byte)
	// Keep, when set, is asked before output is kept, and returns how many of n bytes may be. The others are dropped
	// and counted.
	Keep func(n int) int
}

// ExecResult is what became of the command.
type ExecResult struct {
	Pid            uint32
	Stdout, Stderr []byte
	// Bytes beyond the cap, read and thrown away.
	DroppedStdout, DroppedStderr int64
	ExitCode                     int    // -1 when a signal or the timeout ended it
	ShellCode                    int    // as shells have it: 128+n for signal n, 124 for the timeout
	Status                       string // "exit status 1", "signal: killed", …
	KilledBy                     string // what ended it, if that was the guest's kernel for want of memory
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
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	out := collector{max: req.MaxOutput, tell: req.OnOutput, ask: req.Keep}
	if out.max <= 0 {
		out.max = DefaultMaxOutput
	}
	end, err := c.session(req, &out).Run(streamCtx)
	switch {
	case err == nil:
		out.res.ExitCode, out.res.ShellCode, out.res.Status = end.ExitCode(), end.ShellCode(), end.Status()
		out.res.KilledBy = end.KilledBy()
		return out.res, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case connect.CodeOf(err) == connect.CodeDeadlineExceeded:
		out.res.TimedOut, out.res.ExitCode, out.res.ShellCode = true, -1, timeoutCode
		out.res.Status = fmt.Sprintf("timed out after %s", req.Timeout)
		return out.res, nil
	}
	return out.res, fmt.Errorf("exec %s: %w", req.Args[0], said(err))
}

// session is the same for the agent, with its output to a collector.
func (c *Client) session(req ExecRequest, out *collector) *execclient.Session {
	s := &execclient.Session{
		Process: c.process, Header: http.Header{}, Args: req.Args, Env: req.Env, Cwd: req.Cwd, Stdin: req.Input,
		Stdout:  func(b []byte) error { out.add(&out.res.Stdout, &out.res.DroppedStdout, false, b); return nil },
		Stderr:  func(b []byte) error { out.add(&out.res.Stderr, &out.res.DroppedStderr, true, b); return nil },
		Started: func(pid uint32) { out.res.Pid = pid },
	}
	if req.Input == nil && req.Stdin != nil {
		s.Stdin, s.StdinEnds = bytes.NewReader(req.Stdin), true
	}
	if req.Timeout > 0 {
		s.Header.Set("Connect-Timeout-Ms", strconv.FormatInt(max(1, req.Timeout.Milliseconds()), 10))
	}
	SetUser(s.Header, req.User)
	return s
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

// collector keeps output up to a cap and counts the rest.
type collector struct {
	res  ExecResult
	max  int
	tell func(stderr bool, chunk []byte)
	ask  func(n int) int // may be nil
}

func (c *collector) add(to *[]byte, dropped *int64, stderr bool, b []byte) {
	if c.tell != nil {
		c.tell(stderr, b)
	}
	keep := min(len(b), c.max-len(*to))
	if c.ask != nil && keep > 0 && *dropped == 0 { // what is kept is the beginning
		keep = c.ask(keep)
	} else if *dropped > 0 {
		keep = 0
	}
	*to = append(*to, b[:keep]...)
	*dropped += int64(len(b) - keep)
}
