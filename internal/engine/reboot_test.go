package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// boot simulates a boot of the host: its processes and its run directory are gone.
func (h *host) boot(e *Engine, name string) *Engine {
	h.t.Helper()
	h.close(e)
	h.killAll()
	if err := os.RemoveAll(filepath.Join(h.cfg.RunDir, "vm")); err != nil {
		h.t.Fatal(err)
	}
	h.cfg.BootID = name
	return h.open()
}

// After a boot of the host, paused sandboxes resume. Sandboxes that ran are listed as ended by the
// boot, for as long as other failed ones. Deadlines that passed meanwhile were kept.
func TestABootOfTheHost(t *testing.T) {
	h, e, c := lifeHost(t)
	runs, dies := h.forkFor(e, sandbox.Life{}), h.forkFor(e, sandbox.Life{TTL: time.Hour})
	stays, late := h.forkFor(e, sandbox.Life{}), h.forkFor(e, sandbox.Life{TTL: time.Hour})
	for _, id := range []string{stays.ID, late.ID} {
		h.pause(e, id)
	}
	c.pass(2 * time.Hour)
	for i, name := range []string{"another boot", "another boot", "a third"} { // a daemon's own restart changes nothing
		if i == 1 {
			h.close(e)
			e = h.open()
		} else {
			e = h.boot(e, name)
		}
		for _, id := range []string{runs.ID, dies.ID} {
			info, err := e.Get(id)
			if err != nil || info.Status != sandbox.StatusFailed || !strings.Contains(info.Reason, "rebooted") || info.PID != 0 ||
				info.SnapshotTag != "a" {
				t.Errorf("%s: %+v, %v", name, info, err)
			}
		}
		if got := h.statusOf(e, late.ID); got != "" {
			t.Errorf("%s: a paused sandbox whose deadline has passed is %s", name, got)
		}
		if got := h.statusOf(e, stays.ID); got != sandbox.StatusPaused {
			t.Errorf("%s: the paused sandbox is %q", name, got)
		}
	}
	_, err := e.Exec(t.Context(), runs.ID, sandbox.ExecRequest{Args: []string{"true"}})
	if !errors.Is(err, sandbox.ErrGuestGone) || !strings.Contains(err.Error(), "rebooted") {
		t.Errorf("exec: %v", err)
	}
	if _, err := e.Console(runs.ID); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("console: %v", err)
	}
	if err := errorOf(e.Pause(t.Context(), runs.ID, sandbox.PauseOptions{})); !errors.Is(err, sandbox.ErrGuestGone) {
		t.Errorf("pause: %v", err)
	}
	if err := errorOf(e.Rollback(t.Context(), runs.ID, "a")); err == nil {
		t.Error("it was rolled back")
	}
	h.resume(e, stays.ID)
	// They need no deleted files, and a kill removes them permanently.
	for _, id := range []string{runs.ID, stays.ID} {
		if err := e.Kill(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	h.close(e)
	e = h.open()
	if list := e.List(); len(list) != 1 || list[0].ID != dies.ID {
		t.Errorf("left are %+v", list)
	}
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// An invalid list of running sandboxes costs only the list.
func TestABadListOfWhatRan(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "{", "another version": `{"version":2,"boot":"x","sandboxes":[]}`,
		"a name that is none": `{"version":1,"boot":"x","sandboxes":[{"info":{"ID":"../../etc"}}]}`,
		"null":                `{"version":1,"boot":"x","sandboxes":[null]}`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			if err := os.WriteFile(filepath.Join(h.cfg.StoreDir, "ran.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if list := h.open().List(); len(list) > 0 {
				t.Errorf("listed are %+v", list)
			}
		})
	}
}
