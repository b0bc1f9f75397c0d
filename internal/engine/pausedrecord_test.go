package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// An unreadable record is left alone, and so is the snapshot it may refer to.
func TestARecordThatCannotBeRead(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	info := h.Pause(e, sb.ID)
	h.Close(e)
	file := filepath.Join(h.Cfg.StoreDir, "paused", sb.ID+".json")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"version": 2}`, strings.Replace(string(whole), sb.ID, "sb-00000000-0001", 1)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		e = h.Open()
		if _, err := e.Get(sb.ID); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%q: %v", text, err)
		}
		e.Families().Sweep(t.Context())
		h.Close(e)
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	if got := h.Resume(e, sb.ID); got.PausedIn != info.PausedIn {
		t.Errorf("%+v", got)
	}
}
