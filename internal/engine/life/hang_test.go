package life_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// A guest with a hung kernel is reported in the list and by one event, also by the next daemon. A
// rollback by the owner ends the hang. With RestartOnHang the daemon rolls it back.
func TestAGuestThatHangs(t *testing.T) {
	h := enginefake.NewHost(t)
	clock := &enginefake.Clocks{Wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	h.Cfg.Now, h.Cfg.Elapsed = clock.Now, clock.Since
	var mu sync.Mutex
	told, acts := 0, []sandbox.Act(nil)
	h.Cfg.Events = func(kind, _ string, about map[string]string) {
		mu.Lock()
		defer mu.Unlock()
		if kind == sandbox.EventHangs && strings.Contains(about[sandbox.EventKeyReason], "0xffffffff81c3b4e8") {
			told++
		}
	}
	h.Cfg.Acts = func(a sandbox.Act) {
		mu.Lock()
		defer mu.Unlock()
		acts = append(acts, a)
	}
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := h.Fork(e, "a", 3)
	id := sbs[0].ID
	spin := func(id string) {
		t.Helper()
		if _, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "spin"}); err != nil {
			t.Fatal(err)
		}
	}
	hangs := func(id string) func() bool {
		return func() bool {
			i, err := e.Get(id)
			return err == nil && strings.HasPrefix(i.Warning, "guest kernel hangs: vCPU 0 spins at 0xffffffff81c3b4e8")
		}
	}
	spin(id)
	enginefake.Eventually(t, "report of the hang", hangs(id))
	for range 3 {
		e.Watch.Look(t.Context())
	}
	h.Close(e)
	e = h.Open()
	enginefake.Eventually(t, "report of the hang by the next daemon", hangs(id))
	if i, err := e.Get(sbs[1].ID); err != nil || i.Warning != "" {
		t.Errorf("the other one: %+v, %v", i, err)
	}
	if _, err := e.Rollback(t.Context(), id, "a"); err != nil {
		t.Fatal(err)
	}
	if hangs(id)() {
		t.Error("it hangs after its rollback")
	}

	if _, err := e.SetLife(t.Context(), sbs[1].ID, sandbox.Life{RestartOnHang: true}); err != nil {
		t.Fatal(err)
	}
	spin(sbs[1].ID)
	enginefake.Eventually(t, "rollback by the daemon", func() bool {
		e.Watch.Look(t.Context())
		i, err := e.Get(sbs[1].ID)
		return err == nil && i.RolledBackTo == "a" && i.Warning == ""
	})
	// Its base may hang each time: the next rollback waits.
	spin(sbs[1].ID)
	enginefake.Eventually(t, "report of the second hang", hangs(sbs[1].ID))
	e.Watch.Look(t.Context())
	if !hangs(sbs[1].ID)() {
		t.Error("it is rolled back again at once")
	}
	clock.Pass(30 * time.Second)
	enginefake.Eventually(t, "second rollback by the daemon", func() bool {
		e.Watch.Look(t.Context())
		return !hangs(sbs[1].ID)()
	})
	mu.Lock()
	defer mu.Unlock()
	if told != 3 && told != 4 { // the next daemon may report the first hang once more
		t.Errorf("%d events of three hangs", told)
	}
	if len(acts) != 2 || acts[0].Action != sandbox.ActRollback || acts[0].By != sandbox.ByHang || acts[0].Err != nil {
		t.Errorf("the acts are %+v", acts)
	}
}
