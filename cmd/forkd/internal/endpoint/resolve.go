package endpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/hostcap"
	"github.com/forkd/forkd/internal/machine"
)

// Where says where a daemon runs.
type Where string

const (
	Named   Where = "named" // by a URL
	Host    Where = "host"
	Machine Where = "machine"
)

// Options is what a command was told about the daemon.
type Options struct {
	URL, Token string // from flags or the environment; empty if not given
	Force      Where  // Host or Machine; empty decides
	// Start allows starting what does not run. Without it, Resolve fails then.
	Start bool
	// Progress is told of what takes a while; Notice what a person should know.
	Progress, Notice func(string)
}

// Endpoint is a daemon that answers.
type Endpoint struct {
	URL, Token string
	Where      Where
}

// ErrNotRunning is returned if nothing may be started and nothing runs.
var ErrNotRunning = errors.New("no daemon runs")

// Resolve finds the daemon, and starts it if that is allowed.
func Resolve(ctx context.Context, p Paths, opt Options) (Endpoint, error) {
	if opt.URL != "" {
		return Endpoint{URL: opt.URL, Token: opt.Token, Where: Named}, nil
	}
	where, reason := opt.Force, "asked for"
	if where == "" {
		where, reason = decide(ctx, p)
	}
	tellOnce(p, where, reason, opt.Notice)
	if where == Machine {
		return inMachine(ctx, opt)
	}
	return onHost(ctx, p, opt)
}

// decide prefers a daemon of this host that already answers: whoever started
// it knew that it works.
func decide(ctx context.Context, p Paths) (Where, string) {
	if answers(ctx, p.SocketURL()) {
		return Host, "its daemon answers"
	}
	d := hostcap.QuickKVM(ctx).Decide()
	if d.Where == hostcap.Machine {
		return Machine, d.Reason
	}
	return Host, d.Reason
}

func answers(ctx context.Context, url string) bool {
	c, err := client.New(client.Options{URL: url})
	if err != nil {
		return false
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.Health(ctx) == nil
}

// tellOnce says where VMs run when that is another place than last time. The
// memory is a convenience: without it, it is said every time.
func tellOnce(p Paths, where Where, reason string, notice func(string)) {
	file := filepath.Join(p.State, "where")
	last, _ := os.ReadFile(file)
	if strings.TrimSpace(string(last)) == string(where) {
		return
	}
	place := "on this host"
	if where == Machine {
		place = "in the machine"
	}
	notice(fmt.Sprintf("VMs run %s: %s", place, reason))
	if os.MkdirAll(p.State, 0o700) == nil {
		_ = os.WriteFile(file, []byte(where+"\n"), 0o600)
	}
}

func inMachine(ctx context.Context, opt Options) (Endpoint, error) {
	m, err := machine.Open(machine.DefaultName)
	if err != nil {
		return Endpoint{}, err
	}
	api, err := m.API()
	if errors.Is(err, machine.ErrNotRunning) {
		if !opt.Start {
			return Endpoint{}, ErrNotRunning
		}
		opt.Progress("starting the machine")
		if _, err = m.Start(ctx, machine.StartOptions{Progress: opt.Progress}); err == nil {
			api, err = m.API()
		}
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("start the machine: %w", err)
	}
	e := Endpoint{URL: "http://" + api.Addr, Token: api.Token, Where: Machine}
	return e, waitForMachine(ctx, e)
}

// waitForMachine waits for the daemon inside, which starts after the agent that
// the machine's own readiness is about.
func waitForMachine(ctx context.Context, e Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for !answers(ctx, e.URL) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the machine runs, but the daemon in it does not answer at %s; `forkd machine logs` shows why", e.URL)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
