//go:build linux

package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/machine/hostcap"
)

// startWait limits how long a daemon may take to answer.
const startWait = 20 * time.Second

// onHost returns the daemon of this host.
func onHost(ctx context.Context, p Paths, opt Options) (Endpoint, error) {
	e := Endpoint{URL: p.SocketURL(), Token: opt.Token, Where: Host, CPUs: runtime.NumCPU()}
	if answers(ctx, e.URL) {
		return e, nil
	}
	if !opt.Start {
		return e, ErrNotRunning
	}
	if d := hostcap.QuickKVM(ctx).Decide(); !opt.Anyway && placeOf(d) == Machine {
		return e, hints.With(&client.Error{
			Code: api.CodeUnsupported, Message: "VMs do not run well on this host, so no daemon is started here: " + d.Reason,
		}, "use --machine, or --force-host to override; `forkd doctor` shows details")
	}
	if opt.Forkd == "" {
		var err error
		if opt.Forkd, err = Program("forkd"); err != nil {
			return e, err
		}
	}
	opt.Progress("starting the daemon")
	if err := startDaemon(ctx, p, opt.Forkd); err != nil {
		return e, hints.With(&client.Error{
			Code: api.CodeUnreachable, Message: fmt.Sprintf("start the daemon on this host: %v", err),
		}, "run `forkd serve` to see its error, `forkd doctor` to check this host, or use --machine")
	}
	opt.Notice(fmt.Sprintf(
		"started a daemon on this host, which exits after %s without sandboxes and requests; `forkd daemon "+
			"stop` ends it", idleExit()))
	return e, nil
}

// idleExit returns the idle time after which a daemon ends if a command started it.
func idleExit() string { return cmp.Or(os.Getenv("FORKD_DAEMON_IDLE"), "10m") }

// startDaemon runs `forkd serve` in a separate session, where it outlives this command, and waits
// until it answers.
func startDaemon(ctx context.Context, p Paths, forkd string) error {
	if err := os.MkdirAll(p.State, 0o700); err != nil {
		return err
	}
	logPath := p.ServeLog()
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// It serves its Unix socket only, to this user.
	cmd := exec.Command(forkd, "serve", "--data", p.Data, "--run", p.Run, "--idle-exit", idleExit())
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { // a client's variables
		return strings.HasPrefix(v, "FORKD_TOKEN=") || strings.HasPrefix(v, "E2B_API_KEY=")
	})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	// This command waits while it lives. After that, init does.
	go func() { ended <- cmd.Wait() }()
	return waitForDaemon(ctx, p.SocketURL(), logPath, ended)
}

func waitForDaemon(ctx context.Context, url, logPath string, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for !answers(ctx, url) {
		select {
		case err := <-ended:
			// Another command may have started one at the same time.
			if answers(ctx, url) {
				return nil
			}
			return fmt.Errorf("it ended with %v; its last lines:\n%s", err, lastLines(logPath))
		case <-ctx.Done():
			return errors.New("it does not answer; its last lines:\n" + lastLines(logPath))
		case <-time.After(30 * time.Millisecond):
		}
	}
	return nil
}

func lastLines(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-8):], "\n")
}
