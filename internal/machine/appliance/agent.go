package appliance

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
)

// Agent returns a client of the running machine's agent, or ErrNotRunning. The caller closes it.
func (a *Appliance) Agent() (*agentclient.Client, error) {
	ep, err := a.endpoint(func(s state) int { return s.AgentPort })
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		d := net.Dialer{Timeout: 10 * time.Second}
		return d.DialContext(ctx, "tcp", ep.Addr)
	}
	return agentclient.New(dial, agentclient.WithToken(ep.Token)), nil
}

// Upload writes a file in the appliance. It creates missing parent directories.
func Upload(ctx context.Context, c *agentclient.Client, to string, r io.Reader, size int64) error {
	query := url.Values{"path": {to}, "username": {"root"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/files?"+query.Encode(), io.NopCloser(r))
	if err != nil {
		return err
	}
	req.ContentLength = size
	req.Header.Set("Content-Type", "application/octet-stream")
	res, err := c.HTTP().Do(req)
	if err != nil {
		return fmt.Errorf("upload %s: %w", to, err)
	}
	defer res.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
	if res.StatusCode == http.StatusNotFound {
		return reasonedError{fmt.Errorf("upload %s: the machine's agent is of another version", to),
			"machine_agent_other", nil}
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("upload %s: %s: %s", to, res.Status, said)
	}
	return nil
}

// Command is a program to run in the appliance, as root.
type Command struct {
	Args    []string
	Env     map[string]string
	Dir     string
	Stdin   io.Reader     // if nil, the program has no input
	Timeout time.Duration // 0 for no limit; at the limit the program's whole tree is killed

	Stdout, Stderr io.Writer
}

// Result is the result of a Command.
type Result struct {
	// ExitCode is 128+9 if a signal or the timeout ended the program.
	ExitCode int
	Status   string
	TimedOut bool
}

const killedExitCode = 128 + 9

// Run runs a command to its end and streams its output. An error means that the result is unknown, because the
// appliance is gone or ctx ended.
func Run(ctx context.Context, c *agentclient.Client, cmd Command) (Result, error) {
	// Output is passed on as it arrives, and not kept.
	var failed error
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := c.Exec(ctx, agentclient.ExecRequest{
		Args: cmd.Args, Env: cmd.Env, Cwd: cmd.Dir, User: "root", Input: cmd.Stdin, Timeout: cmd.Timeout, MaxOutput: 1,
		OnOutput: func(stderr bool, chunk []byte) {
			to := cmd.Stdout
			if stderr {
				to = cmd.Stderr
			}
			if to == nil || failed != nil {
				return
			}
			if _, failed = to.Write(chunk); failed != nil {
				cancel(fmt.Errorf("write output: %w", failed)) // the reader closed its end
			}
		},
	})
	if err != nil {
		return Result{}, err
	}
	out := Result{ExitCode: res.ExitCode, Status: res.Status, TimedOut: res.TimedOut}
	if out.ExitCode < 0 {
		out.ExitCode = killedExitCode
	}
	return out, nil
}
