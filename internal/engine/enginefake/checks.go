package enginefake

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/store/receipt"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// ErrAny matches any error.
var ErrAny = anyError{}

type anyError struct{}

func (anyError) Error() string { return "any error" }

// Fill makes a sandbox's disk run out of space, in a call that ends with that error.
func Fill(h *Host, e *engine.Engine, id string) {
	h.T.Helper()
	_, err := e.Eval(h.T.Context(), id, sandbox.EvalRequest{Code: "fill"})
	WantError(h.T, err, sandbox.ErrNoSpace, id, "paused: no room on the host for its disk", "disk 1")
}

// Verifies waits until a snapshot verifies. Until then the only accepted error is that its digests
// are not ready. It returns how often it got that error.
func Verifies(h *Host, e *engine.Engine, tag string) (waited int) {
	h.T.Helper()
	Eventually(h.T, "digests of "+tag, func() bool {
		info, err := e.SnapshotInfo(h.T.Context(), tag)
		if err != nil || info.Status != sandbox.SnapshotReady {
			h.T.Fatalf("info of %s: %+v, %v", tag, info, err)
		}
		r, err := e.VerifySnapshot(h.T.Context(), tag)
		switch {
		case err == nil && r.OK() && r.Files > 0:
			return true
		case !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "content digests are not ready yet"):
			h.T.Fatalf("verify %s: %+v, %v", tag, r, err)
		case info.DigestsReady:
			h.T.Fatalf("info of %s says that the digests are ready, verify says: %v", tag, err)
		}
		waited++
		return false
	})
	if info, err := e.SnapshotInfo(h.T.Context(), tag); err != nil || !info.DigestsReady {
		h.T.Errorf("info of %s says that the digests are not ready: %v", tag, err)
	}
	return waited
}

// UsedUp returns a function that reports whether a VM took a token of that name.
func (h *Host) UsedUp(name string) func() bool {
	return func() bool {
		left, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "fake", name+".*"))
		return len(left) == 0
	}
}

// Failed returns a function that reports whether a sandbox is listed as failed.
func Failed(e *engine.Engine, id string) func() bool {
	return func() bool { i, err := e.Get(id); return err == nil && i.Status == sandbox.StatusFailed }
}

// Receipt returns a receipt that exists.
func Receipt(h *Host, e *engine.Engine, kind receipt.Kind, of string) receipt.Receipt {
	h.T.Helper()
	r, err := e.Receipt(kind, of)
	if err != nil {
		h.T.Fatal(err)
	}
	return r
}

// MustGet returns a sandbox that exists.
func MustGet(t *testing.T, e *engine.Engine, id string) sandbox.Info {
	t.Helper()
	i, err := e.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// ReasonOf returns the reason of an error; empty if it has none.
func ReasonOf(err error) sandbox.Reason {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Reason()
	}
	return ""
}

// HasWorkingSet reports whether a snapshot has a recorded working set.
func HasWorkingSet(h *Host, tag string) bool {
	_, err := os.Stat(filepath.Join(h.Cfg.StoreDir, "snapshots", tag, snapshot.WorkingSetFile))
	return err == nil
}
