//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/audit"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/network/netproc"
	"github.com/forkd/forkd/internal/httpapi"
	"github.com/forkd/forkd/internal/netd/control"
	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/undo"
)

// Bounds of what the audit log has of flows that were refused: a guest can try as many as it likes.
const (
	verdictEvery = 10 * time.Second // refusals of a sandbox within this are together
	verdictKinds = 8                // lines of a sandbox in that time; all others are one more
	verdictMax   = 512              // lines of all sandboxes in that time; what is beyond is only counted
)

// verdicts puts refused flows into the audit log, added up: each one is in forkd-net's own.
type verdicts struct {
	log    httpapi.Audit
	runDir string
	warn   *slog.Logger
	// connected has a value when forkd-net was reached anew.
	connected chan struct{}
	owner     func(id string) string

	mu      sync.Mutex // guards what follows
	pending map[verdict]int
	kinds   map[string]int // of a sandbox, in pending
	beyond  int
}

// verdict is what refusals have in common that are one line.
type verdict struct{ sandbox, verdict, far string }

// verdicts has an engine's connection to forkd-net tell of itself; nil: nobody asks.
func (o serveOptions) verdicts(c *engine.Config, log httpapi.Audit, warn *slog.Logger) *verdicts {
	if log == nil || c.NetConnect == nil {
		return nil
	}
	v := newVerdicts(log, c.RunDir, warn)
	connect := c.NetConnect
	c.NetConnect = func(ctx context.Context) (sandbox.NetPort, error) {
		port, err := connect(ctx)
		if err == nil {
			select {
			case v.connected <- struct{}{}:
			default:
			}
		}
		return port, err
	}
	return v
}

func newVerdicts(log httpapi.Audit, runDir string, warn *slog.Logger) *verdicts {
	return &verdicts{log: log, runDir: runDir, warn: warn, connected: make(chan struct{}, 1),
		owner: func(string) string { return "" }, pending: map[verdict]int{}, kinds: map[string]int{}}
}

// follow follows forkd-net until what was opened is closed.
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
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { v.listen(ctx) })
	work.Go(func() { v.writeOften(ctx) })
	opened.Push(func() {
		stop()
		work.Wait()
	})
}

// listen takes lines of each forkd-net that is reached.
func (v *verdicts) listen(ctx context.Context) {
	for {
		select {
		case <-v.connected:
		case <-ctx.Done():
			return
		}
		if err := netproc.Follow(ctx, v.runDir, v.take); err != nil && ctx.Err() == nil {
			v.warn.Info("refused flows are not in the audit log until forkd-net is reached again", "err", err)
		}
	}
}

func (v *verdicts) writeOften(ctx context.Context) {
	tick := time.NewTicker(verdictEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			v.write()
		case <-ctx.Done():
			v.write()
			return
		}
	}
}

// take counts a line. What was allowed is no verdict that anybody has to know of here.
func (v *verdicts) take(l control.Line) {
	switch l.Verdict {
	case control.Denied, control.Limited, control.Broken:
	default:
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	k := verdict{l.Sandbox, l.Verdict, farOf(l)}
	if _, known := v.pending[k]; !known {
		if v.kinds[l.Sandbox] >= verdictKinds {
			k.far = "others"
		}
		if _, known := v.pending[k]; !known {
			if len(v.pending) >= verdictMax {
				v.beyond += max(l.Count, 1)
				return
			}
			v.kinds[l.Sandbox]++
		}
	}
	v.pending[k] += max(l.Count, 1)
}

// farOf is where a flow was to go, and why it did not.
func farOf(l control.Line) string {
	to := l.Name
	if l.Far.IsValid() {
		to += " " + l.Far.String()
	}
	return fmt.Sprintf("%s %s %s%s", l.Protocol, to, l.Rule, l.Reason)
}

// write adds a line for all that was counted.
func (v *verdicts) write() {
	v.mu.Lock()
	pending, beyond := v.pending, v.beyond
	v.pending, v.kinds, v.beyond = map[verdict]int{}, map[string]int{}, 0
	v.mu.Unlock()
	for k, n := range pending {
		v.log.Add(audit.Entry{Action: "network." + k.verdict, Result: audit.Refused, Principal: "forkd-net",
			Sandbox: k.sandbox, Tenant: v.owner(k.sandbox), Object: k.far, Count: n})
	}
	if beyond > 0 {
		v.log.Add(audit.Entry{Action: "network." + control.Denied, Result: audit.Refused, Principal: "forkd-net",
			Object: "of other sandboxes", Count: beyond})
	}
}
