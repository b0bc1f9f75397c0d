package engine_test

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// While a fork or a branch uses a snapshot, its tag stays.
func TestASnapshotInUseIsNotRenamed(t *testing.T) {
	e := enginefake.NewHost(t).Open()
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny"}, nil); err != nil {
		t.Fatal(err)
	}
	leave, err := e.SnapshotCatalog().Use(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.RenameSnapshot(t.Context(), "a", "b"); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("got %v", err)
	}
	leave()
	if _, err := e.RenameSnapshot(t.Context(), "a", "b"); err != nil {
		t.Error(err)
	}
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "b", N: 1})
	if err != nil {
		t.Fatal(err)
	}
	paused, err := e.Pause(t.Context(), r.Children[0].Info.ID, sandbox.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.RenameSnapshot(t.Context(), paused.PausedIn, "c"); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("the snapshot of a pause: %v", err)
	}
	if _, err := e.Resume(t.Context(), paused.ID); err != nil {
		t.Error(err)
	}
}
