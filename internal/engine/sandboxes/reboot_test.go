package sandboxes_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// boot simulates a boot of the host: its processes and its run directory are gone.
func boot(h *enginefake.Host, e *engine.Engine, name string) *engine.Engine {
	h.T.Helper()
	h.Close(e)
	h.KillAll()
	if err := os.RemoveAll(filepath.Join(h.Cfg.RunDir, "vm")); err != nil {
		h.T.Fatal(err)
	}
	h.Cfg.BootID = name
	return h.Open()
}

// After a boot of the host, paused sandboxes resume. Sandboxes that ran are listed as ended by the
// boot, for as long as other failed ones. Deadlines that passed meanwhile were kept.
func TestABootOfTheHost(t *testing.T) {
	h, e, c := enginefake.LifeHost(t)
	runs, dies := h.ForkFor(e, sandbox.Life{}), h.ForkFor(e, sandbox.Life{TTL: time.Hour})
	stays, late := h.ForkFor(e, sandbox.Life{}), h.ForkFor(e, sandbox.Life{TTL: time.Hour})
	for _, id := range []string{stays.ID, late.ID} {
		h.Pause(e, id)
	}
	c.Pass(2 * time.Hour)
	for i, name := range []string{"another boot", "another boot", "a third"} { // a daemon's own restart changes nothing
		if i == 1 {
			h.Close(e)
			e = h.Open()
		} else {
			e = boot(h, e, name)
		}
		for _, id := range []string{runs.ID, dies.ID} {
			info, err := e.Get(id)
			if err != nil || info.Status != sandbox.StatusFailed || !strings.Contains(info.Reason, "rebooted") || info.PID != 0 ||
				info.SnapshotTag != "a" {
				t.Errorf("%s: %+v, %v", name, info, err)
			}
		}
		if got := enginefake.StatusOf(h, e, late.ID); got != "" {
			t.Errorf("%s: a paused sandbox whose deadline has passed is %s", name, got)
		}
		if got := enginefake.StatusOf(h, e, stays.ID); got != sandbox.StatusPaused {
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
	if err := enginefake.ErrorOf(e.Pause(t.Context(), runs.ID, sandbox.PauseOptions{})); !errors.Is(err, sandbox.ErrGuestGone) {
		t.Errorf("pause: %v", err)
	}
	if err := enginefake.ErrorOf(e.Rollback(t.Context(), runs.ID, "a")); err == nil {
		t.Error("it was rolled back")
	}
	h.Resume(e, stays.ID)
	// They need no deleted files, and a kill removes them permanently.
	for _, id := range []string{runs.ID, stays.ID} {
		if err := e.Kill(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	h.Close(e)
	e = h.Open()
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
			h := enginefake.NewHost(t)
			if err := os.WriteFile(filepath.Join(h.Cfg.StoreDir, "ran.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if list := h.Open().List(); len(list) > 0 {
				t.Errorf("listed are %+v", list)
			}
		})
	}
}
