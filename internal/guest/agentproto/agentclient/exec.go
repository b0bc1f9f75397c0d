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

// DefaultMaxOutput is Exec's default limit for stdout and for stderr, in bytes.
const DefaultMaxOutput = 8 << 20

// timeoutCode is the exit code of a command after its timeout, as in timeout(1).
const timeoutCode = 124

// ExecRequest is a command to run to its end.
type ExecRequest struct {
	Args []string          // program and arguments; must not be empty
	Env  map[string]string // overrides the guest's defaults
	Cwd  string            // if empty, the image's working directory or the user's home
	User string            // if empty, the image's default user

	Stdin []byte // if nil, the command reads from /dev/null
	// Input, if set, replaces Stdin and is read until its end. If a Read blocks when the command
	// ends, Exec does not wait for it: a read from a terminal cannot be cancelled.
	Input io.Reader

	// Timeout ends the command and all its descendants. 0 means no timeout.
	Timeout time.Duration
	// MaxOutput limits stdout and stderr each. 0 means DefaultMaxOutput.
	MaxOutput int
	// OnOutput, if set, receives every chunk when it arrives and owns the slice. It may block; the
	// command then waits.
	OnOutput func(stderr bool, chunk []byte)
	// Keep, if set, is called before output is kept. It returns how many of n bytes may be kept.
	// The rest is dropped and counted.
	Keep func(n int) int
}

// ExecResult is the result of a command.
type ExecResult struct {
	Pid            uint32 // in the guest
	Stdout, Stderr []byte // each at most MaxOutput bytes
	// DroppedStdout and DroppedStderr count the bytes beyond the limit. They were read and
	// discarded.
	DroppedStdout, DroppedStderr int64
	ExitCode                     int    // -1 if a signal or the timeout ended the command
	ShellCode                    int    // as in shells: 128+n for signal n, 124 for the timeout
	Status                       string // "exit status 1", "signal: killed", …
	KilledBy                     string // reason, if the guest's kernel killed the command for lack of memory
	TimedOut                     bool   // the command was killed at ExecRequest.Timeout
}

// Exec runs a command and waits for its end. A command that fails or times out is a result. If Exec
// returns an error, the command did not run or its end is unknown. If ctx ends first, the command
// and all its descendants are killed.
func (c *Client) Exec(ctx context.Context, req ExecRequest) (ExecResult, error) {
	if len(req.Args) == 0 {
		return ExecResult{}, errors.New("exec: no command given")
	}
	// The deadline travels as a header, to let the guest still report the end. A deadline on the
	// context would cut the stream at the same moment.
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

// session returns the execclient.Session for req, with its output going to out.
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

// SetUser sets the guest user of a request. An empty user selects the default.
func SetUser(h http.Header, user string) {
	if user == "" {
		return
	}
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, "")
	h.Set("Authorization", r.Header.Get("Authorization"))
}

// collector keeps output up to a limit and counts the rest.
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
	if c.ask != nil && keep > 0 && *dropped == 0 { // only the beginning is kept
		keep = c.ask(keep)
	} else if *dropped > 0 {
		keep = 0
	}
	*to = append(*to, b[:keep]...)
	*dropped += int64(len(b) - keep)
}
