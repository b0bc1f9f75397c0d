//go:build linux

package main

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netd/control"
)

// auditLines are entries in memory.
type auditLines struct{ all []audit.Entry }

func (a *auditLines) Add(e audit.Entry)  { a.all = append(a.all, e) }
func (a *auditLines) Stats() audit.Stats { return audit.Stats{} }

func TestRefusedFlowsAreInTheAuditLog(t *testing.T) {
	lines := &auditLines{}
	v := newVerdicts(lines, t.TempDir(), slog.New(slog.DiscardHandler))
	v.owner = func(id string) string { return "of-" + id }
	counted := map[string]int{}
	v.count = func(verdict string, n int) { counted[verdict] += n }
	v.collect(t.Context()) // no forkd-net runs
	if len(lines.all) != 0 || !v.failing {
		t.Errorf("got %+v", lines.all)
	}
	there := control.Untold{Lost: 5, Lines: []control.Line{
		{Sandbox: "sb-1", Protocol: "tcp", Name: "a.example", Far: netip.MustParseAddrPort("192.0.2.1:443"),
			Verdict: control.Denied, Rule: "deny", Count: 3},
		{Sandbox: "sb-1", Name: control.Others, Verdict: control.Limited, Count: 1}}}
	v.ask = func(context.Context) (u control.Untold, err error) {
		u, there = there, control.Untold{}
		return u, nil
	}
	v.collect(t.Context())
	v.collect(t.Context())
	for i, want := range []audit.Entry{
		{Action: "network.denied", Sandbox: "sb-1", Tenant: "of-sb-1", Object: "tcp a.example 192.0.2.1:443 deny", Count: 3},
		{Action: "network.limited", Sandbox: "sb-1", Tenant: "of-sb-1", Object: "others", Count: 1},
		{Action: "network.denied", Object: "of other sandboxes", Count: 5},
	} {
		want.Result, want.Principal = audit.Refused, "forkd-net"
		if len(lines.all) != 3 || lines.all[i] != want {
			t.Errorf("got %+v, want %+v", lines.all, want)
		}
	}
	there, v.log = control.Untold{Lost: 2}, nil // there is no audit log
	v.collect(t.Context())
	if counted[control.Denied] != 10 || counted[control.Limited] != 1 {
		t.Errorf("counted %v", counted)
	}
}

func TestWhatIsDoneWithoutARequestIsInTheAuditLog(t *testing.T) {
	lines := &auditLines{}
	act := acting(lines, &apiServer{})
	of := sandbox.Info{ID: "sb-1", Owner: "acme", SnapshotTag: "py", Kin: sandbox.Kin{Key: "k1"}}
	act(sandbox.Act{Action: sandbox.ActFork, By: sandbox.ByGuest, Of: of, Count: 2, Took: time.Millisecond})
	act(sandbox.Act{Action: sandbox.ActFork, By: sandbox.ByGuest, Of: of, Err: sandbox.Errorf(sandbox.ErrQuota, "", "over")})
	act(sandbox.Act{Action: sandbox.ActPause, By: sandbox.ByIdleness, Of: of, Why: "idle", Err: sandbox.Errorf(sandbox.ErrBusy, "", "x")})
	act(sandbox.Act{Action: sandbox.ActDelete, By: sandbox.ByRetention, Why: "expired at noon",
		Of: sandbox.Info{Owner: "acme", SnapshotTag: "acme-b"}})
	for i, want := range []audit.Entry{
		{Action: "sandbox.fork", Result: audit.OK, Principal: "guest", Key: "k1", Tenant: "acme", Sandbox: "sb-1",
			Snapshot: "py", Count: 2, LatencyUS: 1000},
		{Action: "sandbox.fork", Result: audit.Refused, Principal: "guest", Key: "k1", Tenant: "acme", Sandbox: "sb-1",
			Snapshot: "py", Error: "over"},
		{Action: "sandbox.pause", Result: audit.Failed, Principal: "idle", Key: "k1", Tenant: "acme", Sandbox: "sb-1",
			Snapshot: "py", Object: "idle", Error: "x"},
		{Action: "snapshot.delete", Result: audit.OK, Principal: "retention", Tenant: "acme", Snapshot: "acme-b",
			Object: "expired at noon"},
	} {
		if got := lines.all[i]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	acting(nil, &apiServer{})(sandbox.Act{}) // there is no audit log
}
