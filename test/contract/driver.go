package contract

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Driver makes calls through one client.
type Driver interface {
	// Call makes one call. The answer has the types of decoded JSON, in the API's field names.
	Call(ctx context.Context, op string, args map[string]any) (any, error)
}

// Failure is an error as a client reports it.
type Failure struct {
	Class  string `json:"class"` // name of the exception's class; empty for clients without classes
	Code   string `json:"code"`
	Reason string `json:"reason"`
	Hint   string `json:"hint"`
	Status int    `json:"status"`
	Text   string `json:"message"`
}

func (f *Failure) Error() string { return fmt.Sprintf("%s (%s %s)", f.Text, f.Code, f.Reason) }

// errNoCall means that a client has no way to make the call.
var errNoCall = errors.New("the client cannot make this call")

// process is a driver in another process. It reads a call on each line of its standard input,
// {"op", "args"}, and answers with a line {"ok": answer} or {"error": Failure}.
type process struct {
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

// startProcess starts a driver. Its context bounds its life.
func startProcess(ctx context.Context, env []string, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, name, args...)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), env...), os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

func (p *process) Call(_ context.Context, op string, args map[string]any) (any, error) {
	line, err := json.Marshal(map[string]any{"op": op, "args": args})
	if err != nil {
		return nil, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	answer, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the driver ended: %w", err)
	}
	var got struct {
		OK    any      `json:"ok"`
		Error *Failure `json:"error"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return nil, fmt.Errorf("the driver answered %q: %w", answer, err)
	}
	if got.Error != nil {
		if got.Error.Code == "no_call" {
			return nil, errNoCall
		}
		return nil, got.Error
	}
	return got.OK, nil
}

// Close ends the driver.
func (p *process) Close() error {
	p.in.Close()
	return p.cmd.Wait()
}
