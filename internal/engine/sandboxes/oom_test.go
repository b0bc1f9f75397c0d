package sandboxes_test

import (
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// A process killed by a guest's kernel has one event, also across daemons, and is in the list. A
// flood of kills has a bounded number of events.
func TestAProcessKilledByAGuestsKernel(t *testing.T) {
	h := enginefake.NewHost(t)
	var mu sync.Mutex
	var told []map[string]string
	h.Cfg.Events = func(kind, _ string, about map[string]string) {
		mu.Lock()
		defer mu.Unlock()
		if kind == sandbox.EventOOM {
			told = append(told, about)
		}
	}
	events := func() []map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return told
	}
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := h.Fork(e, "a", 2)
	id := sbs[0].ID
	kill := func(e *engine.Engine, code string) {
		t.Helper()
		if _, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: code}); err != nil {
			t.Fatal(err)
		}
	}
	kill(e, "oom")
	for range 3 {
		e.Watch.Look(t.Context())
	}
	last := func(e *engine.Engine, id string) *sandbox.OOM {
		t.Helper()
		i, err := e.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		return i.LastOOM
	}
	const name = `py\x1bthon`
	if o := last(e, id); o == nil || o.PID != 41 || o.Process != name || o.At.IsZero() || last(e, sbs[1].ID) != nil {
		t.Errorf("the list has %+v, of the other %+v", o, last(e, sbs[1].ID))
	}
	if got := events(); len(got) != 1 || got[0]["pid"] != "41" || got[0]["process"] != name || got[0]["time"] == "" {
		t.Fatalf("the events are %v", got)
	}
	h.Close(e)
	e = h.Open()
	e.Watch.Look(t.Context())
	if o := last(e, id); o == nil || len(events()) != 1 {
		t.Errorf("the next daemon has %+v, and the events %v", o, events())
	}
	kill(e, "flood of kills")
	e.Watch.Look(t.Context())
	if got := events(); len(got) != 9 || got[1]["earlier"] != "12" {
		t.Errorf("20 kills have %d events: %v", len(got)-1, got)
	}
}
