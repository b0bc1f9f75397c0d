//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/auditing"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/network/netproc"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/net/netd/control"
)

// verdictEvery is the interval of requests to forkd-net for refused flows. forkd-net adds them up
// meanwhile.
const verdictEvery = 10 * time.Second

// verdictPatience limits one such request.
const verdictPatience = 5 * time.Second

// verdicts counts refused flows, and writes them into the audit log. forkd-net logs each refusal itself. It stores
// the sums while no daemon asks, so the first request returns refusals from before this daemon.
type verdicts struct {
	log   auditing.Log // nil if there is no audit log
	count func(verdict string, n int)
	ask   func(context.Context) (control.Untold, error)
	warn  *slog.Logger
	owner func(id string) string

	before  control.Untold // from before the engine existed; the engine may start another forkd-net
	failing bool
}

// verdicts returns nil if there is no forkd-net.
func (o serveOptions) verdicts(ctx context.Context, c *engine.Config, log auditing.Log,
	count func(verdict string, n int), warn *slog.Logger) *verdicts {
	if c.NetConnect == nil {
		return nil
	}
	v := newVerdicts(log, c.RunDir, warn)
	v.count = count
	v.before, _ = v.askSoon(ctx) // usually no forkd-net runs yet
	return v
}

func newVerdicts(log auditing.Log, runDir string, warn *slog.Logger) *verdicts {
	return &verdicts{log: log, count: func(string, int) {}, warn: warn, owner: func(string) string { return "" },
		ask: func(ctx context.Context) (control.Untold, error) { return netproc.Untold(ctx, runDir) }}
}

// follow asks forkd-net until the daemon closes, and then once more.
func (v *verdicts) follow(ctx context.Context, e *engine.Engine, opened *undo.Stack) {
	if v == nil {
		return
	}
	v.owner = func(id string) string {
		info, err := e.Get(id)
		if err != nil { // it has ended meanwhile
			return ""
		}
		return info.Owner
	}
	v.write(v.before)
	run := context.WithoutCancel(ctx)
	ctx, stop := context.WithCancel(run)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		v.writeOften(ctx)
	}()
	opened.Push(func() {
		stop()
		<-ended
		v.collect(run)
	})
}

func (v *verdicts) writeOften(ctx context.Context) {
	tick := time.NewTicker(verdictEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			v.collect(context.WithoutCancel(ctx)) // handed-over verdicts must not be lost
		case <-ctx.Done():
			return
		}
	}
}

// collect writes the refusals since the last request.
func (v *verdicts) collect(ctx context.Context) {
	u, err := v.askSoon(ctx)
	if err == nil {
		v.write(u)
	} else if !v.failing {
		v.warn.Info("refused flows are not counted until forkd-net answers", "err", err)
	}
	v.failing = err != nil
}

func (v *verdicts) askSoon(ctx context.Context) (control.Untold, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, verdictPatience, errors.New("forkd-net does not answer"))
	defer cancel()
	return v.ask(ctx)
}

// write counts the flows, and adds an audit line for each line of forkd-net.
func (v *verdicts) write(u control.Untold) {
	for _, l := range u.Lines {
		v.count(l.Verdict, max(l.Count, 1))
	}
	v.count(control.Denied, u.Lost)
	if v.log == nil {
		return
	}
	for _, l := range u.Lines {
		owner := l.Owner // an older forkd-net does not send it, and the daemon does not know it after the sandbox has ended
		if owner == "" {
			owner = v.owner(l.Sandbox)
		}
		v.log.Add(audit.Entry{Action: "network." + l.Verdict, Result: audit.Refused, Principal: "forkd-net",
			Sandbox: l.Sandbox, Tenant: owner, Object: farOf(l), Count: max(l.Count, 1)})
	}
	if u.Lost > 0 {
		v.log.Add(audit.Entry{Action: "network." + control.Denied, Result: audit.Refused, Principal: "forkd-net",
			Object: "of other sandboxes", Count: u.Lost})
	}
}

// farOf returns the destination of a flow, and the reason for its refusal.
func farOf(l control.Line) string {
	to := l.Name
	if l.Far.IsValid() {
		to += " " + l.Far.String()
	}
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %s%s", l.Protocol, to, l.Rule, l.Reason)), " ")
}
