package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/guest/agentproto/guard"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
	"github.com/forkd/forkd/internal/guest/agentproto/protobound"
	"github.com/forkd/forkd/internal/guest/execclient"
)

// Size is the size of a terminal.
type Size = execclient.Size

// ExecOptions describe a program and its streams.
type ExecOptions struct {
	Args []string          // program and its arguments
	Env  map[string]string // added to the guest's environment
	Cwd  string            // if empty, the image's
	User string            // if empty, the image's

	// Stdin is read to its end. If nil, the program has no input. When the program ends, ExecStream
	// abandons a blocked Read, because a Read from a terminal cannot be interrupted.
	Stdin          io.Reader
	Stdout, Stderr io.Writer // if nil, the output is discarded

	// Terminal, if not nil, runs the program on a terminal of that size. Stdout then receives all
	// of its output.
	Terminal *Size
	// Resize carries new sizes of the terminal. The caller closes it.
	Resize <-chan Size
	// Signals carries signals for the program's process group, by their Linux numbers. SIGKILL also kills
	// all processes the program started. An agent older than the client's version gets SIGTERM for every other one.
	Signals <-chan syscall.Signal

	// Started, if not nil, receives the program's process id in the guest when it has started.
	Started func(pid uint32)
	// Outlive lets the program go on when ctx ends or the connection breaks.
	Outlive bool
}

// ExecStatus describes how a program ended.
type ExecStatus struct {
	// ExitCode is 128+n if signal n ended the program.
	ExitCode int
	// Status describes the end in words, such as "exit status 1" or "signal: killed".
	Status string
	// KilledBy is set if the guest's kernel killed the program because memory ran out. It is empty
	// otherwise.
	KilledBy string
}

// ErrNoProgram and ErrNotExecutable are wrapped by ExecStream when the program cannot be started.
var (
	ErrNoProgram     = errors.New("no such program in the guest")
	ErrNotExecutable = errors.New("program cannot be executed")
)

// ExecStream runs a program in a sandbox and connects its streams. When ctx ends or the connection
// breaks, the agent kills the program and all processes it started, unless Outlive is set. A failed
// program is not an error: see ExecStatus.
func (c *Client) ExecStream(ctx context.Context, id string, opt ExecOptions) (ExecStatus, error) {
	if len(opt.Args) == 0 {
		return ExecStatus{}, &Error{Code: api.CodeInvalid, Message: "no program to run"}
	}
	end, err := opt.session(c.processes(id)).Run(ctx)
	var broken writeError
	switch {
	case err == nil:
		return ExecStatus{ExitCode: end.ShellCode(), Status: end.Status(), KilledBy: end.KilledBy()}, nil
	case errors.As(err, &broken):
		return ExecStatus{}, broken
	case errors.Is(err, execclient.ErrNoEnd):
		return ExecStatus{}, &Error{Code: api.CodeGuestGone, Message: fmt.Sprintf("exec %s in %s: %v", opt.Args[0], id, err)}
	}
	return ExecStatus{}, execError(opt.Args[0], id, err)
}

// session converts the options for the agent.
func (o ExecOptions) session(p processconnect.ProcessClient) *execclient.Session {
	s := &execclient.Session{
		Process: p, Header: http.Header{}, Args: o.Args, Env: o.Env, Cwd: o.Cwd,
		Stdin: o.Stdin, Stdout: writeTo(o.Stdout), Stderr: writeTo(o.Stderr),
		Terminal: o.Terminal, Resize: o.Resize, Signals: o.Signals,
		Started: o.Started, Outlive: o.Outlive,
	}
	if o.User != "" {
		s.Header.Set(api.HeaderAgentUser, o.User)
	}
	return s
}

// writeError is a failure of the caller's own writer.
type writeError struct{ error }

func (e writeError) Error() string { return "write output: " + e.error.Error() }

func (e writeError) Unwrap() error { return e.error }

func writeTo(w io.Writer) func([]byte) error {
	if w == nil {
		return nil
	}
	return func(b []byte) error {
		if _, err := w.Write(b); err != nil {
			return writeError{err}
		}
		return nil
	}
}

// processes returns a client of the process service of a sandbox's agent.
func (c *connection) processes(id string) processconnect.ProcessClient {
	return processconnect.NewProcessClient(guard.Client{Next: c.http}, c.base+sandboxPath(id, "/agent"), agentOptions()...)
}

// maxElements limits the elements of one answer of an agent. A directory listing has up to four per
// file.
const maxElements = 4 * protobound.MaxElements

func agentOptions() []connect.ClientOption {
	return guard.Options(maxElements)
}

// execError describes a failure to run a program.
func execError(program, id string, err error) error {
	err = agentError(fmt.Sprintf("exec %s in %s", program, id), err)
	var e *Error
	switch {
	case !errors.As(err, &e) || e.Status != 0:
	case e.Code == api.CodeInvalid:
		e.cause = startCause(e.Message)
	case e.Reason == api.ReasonSandboxBroken:
		e.Details = map[string]string{"sandbox": id}
	}
	return err
}

// agentError converts an error of the agent's services. The daemon's own errors stay unchanged. The
// agent's errors get a code.
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
	e := &Error{Code: connectCode(remote.Code()), Message: doing + ": " + remote.Message()}
	if remote.Code() == connect.CodeDataLoss {
		e.Reason = api.ReasonSandboxBroken
	}
	return e
}

// noSuchFile is the guest's text for ENOENT. This host may use another text.
const noSuchFile = "no such file or directory"

// startCause distinguishes a missing program from one that cannot run, as shells do. It returns nil
// for other invalid requests. The agent uses one code for all of them. Only its text differs:
// command 'X' not found, command 'X': REASON.
func startCause(message string) error {
	about := strings.Contains(message, ": command '") || strings.Contains(message, ": start '")
	switch {
	case !about:
		return nil
	case strings.HasSuffix(message, "not found"), strings.Contains(message, noSuchFile):
		return ErrNoProgram
	}
	return ErrNotExecutable
}

func connectCode(code connect.Code) api.Code {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeAlreadyExists, connect.CodePermissionDenied,
		connect.CodeFailedPrecondition:
		return api.CodeInvalid
	case connect.CodeNotFound:
		return api.CodeNotFound
	case connect.CodeUnauthenticated: // the guest does not have the user
		return api.CodeInvalid
	case connect.CodeDeadlineExceeded:
		return api.CodeTimeout
	case connect.CodeResourceExhausted:
		return api.CodeNoSpace
	case connect.CodeUnavailable, connect.CodeAborted, connect.CodeDataLoss: // data loss: its user removed system files
		return api.CodeGuestGone
	case connect.CodeUnimplemented:
		return api.CodeUnsupported
	}
	return api.CodeInternal
}
