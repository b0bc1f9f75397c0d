//go:build linux

package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/audit"
	"github.com/forkd/forkd/internal/netd/control"
	"github.com/forkd/forkd/internal/sandbox"
)

// auditLines are entries in memory.
type auditLines struct{ all []audit.Entry }

func (a *auditLines) Add(e audit.Entry)  { a.all = append(a.all, e) }
func (a *auditLines) Stats() audit.Stats { return audit.Stats{} }

func TestRefusedFlowsAreAddedUp(t *testing.T) {
	lines := &auditLines{}
	v := newVerdicts(lines, t.TempDir(), slog.New(slog.DiscardHandler))
	v.owner = func(id string) string { return "of-" + id }
	line := control.Line{Sandbox: "sb-1", Protocol: "tcp", Name: "a.example", Far: netip.MustParseAddrPort("192.0.2.1:443"),
		Verdict: control.Denied, Rule: "deny", Count: 3}
	v.take(line)
	v.take(line)
	line.Verdict = control.Allowed
	v.take(line)
	v.write()
	if len(lines.all) != 1 {
		t.Fatalf("got %+v", lines.all)
	}
	if e := lines.all[0]; e.Action != "network.denied" || e.Count != 6 || e.Tenant != "of-sb-1" || e.Sandbox != "sb-1" ||
		e.Result != audit.Refused || !strings.Contains(e.Object, "a.example 192.0.2.1:443") {
		t.Errorf("got %+v", e)
	}
	// A flood, of one sandbox and of many, makes no more lines than the bounds say.
	line.Verdict, line.Count = control.Denied, 1
	for i := range 10_000 {
		line.Name, line.Sandbox = fmt.Sprint(i), fmt.Sprintf("sb-%d", i%200)
		v.take(line)
	}
	lines.all = nil
	v.write()
	sum := 0
	of := map[string]int{}
	for _, e := range lines.all {
		sum += e.Count
		of[e.Sandbox]++
	}
	if len(lines.all) > verdictMax+1 || sum != 10_000 || of["sb-0"] > verdictKinds+1 {
		t.Errorf("%d lines for %d refusals, %d of one sandbox", len(lines.all), sum, of["sb-0"])
	}
	lines.all = nil
	v.write()
	if len(lines.all) != 0 {
		t.Errorf("twice: %+v", lines.all)
	}
}

func TestWhatIsDoneWithoutARequestIsInTheAuditLog(t *testing.T) {
	lines := &auditLines{}
	act := acting(lines, &apiServer{})
	of := sandbox.Info{ID: "sb-1", Owner: "acme", SnapshotTag: "py", Kin: sandbox.Kin{Key: "k1"}}
	act(sandbox.Act{Action: sandbox.ActFork, By: sandbox.ByGuest, Of: of, Count: 2, Took: time.Millisecond})
	act(sandbox.Act{Action: sandbox.ActFork, By: sandbox.ByGuest, Of: of, Err: sandbox.Errorf(sandbox.ErrQuota, "", "over")})
	act(sandbox.Act{Action: sandbox.ActPause, By: sandbox.ByIdleness, Of: of, Why: "idle", Err: sandbox.Errorf(sandbox.ErrBusy, "", "x")})
	for i, want := range []audit.Entry{
		{Action: "sandbox.fork", Result: audit.OK, Principal: "guest", Key: "k1", Tenant: "acme", Sandbox: "sb-1",
			Snapshot: "py", Count: 2, LatencyUS: 1000},
		{Action: "sandbox.fork", Result: audit.Refused, Principal: "guest", Key: "k1", Tenant: "acme", Sandbox: "sb-1",
			Snapshot: "py", Error: "over"},
		{Action: "sandbox.pause", Result: audit.Failed, Principal: "idle", Key: "k1", Tenant: "acme", Sandbox: "sb-1",
			Snapshot: "py", Object: "idle", Error: "x"},
	} {
		if got := lines.all[i]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	acting(nil, &apiServer{})(sandbox.Act{}) // nobody is told
}
