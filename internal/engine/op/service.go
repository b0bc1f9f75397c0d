package op

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/guest"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// Files for the output of a recipe's service, and for its exit status when it has ended.
const (
	serviceLog = "/tmp/forkd-start.log"
	serviceEnd = "/tmp/forkd-start.end"
)

// startScript starts a service ($1) that keeps running when the request is over. $2 is its log, $3
// the file for its exit status.
const startScript = `log=$2 end=$3
rm -f "$end"
setsid sh -c 'sh -c "$1"; echo $? > "$2"' sh "$1" "$end" </dev/null >"$log" 2>&1 &`

// waitScript waits until a check ($1, its own arguments from $3 on) succeeds. It exits with 3 if
// the service, with its exit status in $2, has failed: waiting would then be useless. A service
// that ends with status 0 may have moved into the background.
const waitScript = `check=$1 end=$2
shift 2
until sh -c "$check" sh "$@" >/dev/null 2>&1; do
	if [ -s "$end" ] && [ "$(cat "$end")" != 0 ]; then
		exit 3
	fi
	sleep 0.05
done`

// serviceFailed is that exit status.
const serviceFailed = 3

// readiness describes how to check that a service is ready.
type readiness struct {
	what  string   // for the error: "port 80 to be listened on"
	check []string // arguments for waitScript
	log   string   // file quoted in the error
	limit time.Duration
}

func readinessOf(r sandbox.Ready) readiness {
	out := readiness{log: serviceLog, limit: r.Timeout}
	switch {
	case r.Port != 0:
		// Column 2 is the local address with its port in hex, column 4 the state: 0A is LISTEN.
		out.what = fmt.Sprintf("port %d to be listened on", r.Port)
		out.check = []string{`cat /proc/net/tcp /proc/net/tcp6 | grep -q "^ *[0-9]*: [0-9A-F]*:$1 [0-9A-F:]* 0A "`,
			fmt.Sprintf("%04X", r.Port)}
	case r.Command != "":
		out.what = "this command to succeed: " + sandbox.Clip(r.Command)
		out.check = []string{`sh -c "$1"`, r.Command}
	default:
		if r.LogFile != "" {
			out.log = r.LogFile
		}
		out.what = fmt.Sprintf("%q in %s", r.LogText, out.log)
		out.check = []string{`grep -qF -- "$1" "$2"`, r.LogText, out.log}
	}
	return out
}

// args returns the command line of the waiting program.
func (r readiness) args(end string) []string {
	return append([]string{"sh", "-c", waitScript, "sh", r.check[0], end}, r.check[1:]...)
}

// startService starts the recipe's service, if it has one.
func (c *createOp) startService(ctx context.Context) error {
	if c.src.image.Start == "" {
		return nil
	}
	r, err := c.agent.Exec(ctx, agentclient.ExecRequest{
		Args: []string{"sh", "-c", startScript, "sh", c.src.image.Start, serviceLog, serviceEnd}, MaxOutput: tailBytes})
	switch {
	case err != nil:
		return fmt.Errorf("start the service: %w", err)
	case r.ExitCode != 0:
		return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonWarmUpFailed, "start the service: %s: %s", r.Status,
			guesttext.Tail(bytes.TrimSpace(r.Stderr)))
	}
	return nil
}

// awaitReady waits for the recipe's ready condition before the snapshot.
func (c *createOp) awaitReady(ctx context.Context) error {
	if c.src.image.Ready == nil {
		return nil
	}
	want := readinessOf(*c.src.image.Ready)
	ctx, cancel := context.WithTimeout(ctx, want.limit+guest.AnswerGrace)
	defer cancel()
	r, err := c.agent.Exec(ctx, agentclient.ExecRequest{Args: want.args(serviceEnd), User: "root", Timeout: want.limit,
		MaxOutput: tailBytes})
	switch {
	case err != nil:
		return fmt.Errorf("wait for %s: %w", want.what, err)
	case r.TimedOut:
		return c.notReady(ctx, want, fmt.Sprintf("waited %s for %s in vain", want.limit, want.what))
	case r.ExitCode == serviceFailed:
		return c.notReady(ctx, want, "the service has failed while it was waited for "+want.what)
	case r.ExitCode != 0:
		return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonWarmUpFailed, "wait for %s: %s: %s", want.what, r.Status,
			guesttext.Tail(bytes.TrimSpace(r.Stderr)))
	}
	return nil
}

// notReady returns the error, with the end of the service's output.
func (c *createOp) notReady(ctx context.Context, want readiness, what string) error {
	var said tail
	r, err := c.agent.Exec(ctx, agentclient.ExecRequest{
		Args: []string{"sh", "-c", `tail -c "$1" -- "$2"`, "sh", strconv.Itoa(tailBytes), want.log}, User: "root",
		Timeout: 5 * time.Second})
	if err == nil {
		said.add(r.Stdout)
	}
	return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonWarmUpFailed, "%s%s", what, said.text())
}

// Languages of warm-up steps that are programs and end. They leave only files and the page cache.
const (
	warmCommand = "command"
	warmNode    = "node"
)

// warmProgram returns the arguments of such a step. It returns nil if the language has an
// interpreter that keeps running.
func warmProgram(s sandbox.WarmStep) []string {
	switch s.Language {
	case warmCommand:
		return []string{"sh", "-c", s.Code}
	case warmNode:
		return []string{"node", "-e", s.Code}
	}
	return nil
}

// runWarm runs a step that is a program.
func (c *createOp) runWarm(ctx context.Context, n int, language string, args []string, limit time.Duration) error {
	var said tail
	r, err := c.agent.Exec(ctx, agentclient.ExecRequest{Args: args, Timeout: limit, MaxOutput: 1,
		OnOutput: func(_ bool, chunk []byte) { said.add(chunk) }})
	switch {
	case err != nil:
		return err
	case r.TimedOut:
		return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonWarmUpFailed, "%s of step %d timed out after %s%s",
			language, n, limit, said.text())
	case r.ExitCode != 0:
		return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonWarmUpFailed, "%s of step %d: %s%s",
			language, n, r.Status, said.text())
	}
	return nil
}
