package engine_test

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/pool"
	"github.com/forkd/forkd/internal/leaf/storeerr"
)

// A snapshot that cannot prepare shells gets plain ones, and its forks return the error.
func TestAPoolOfASnapshotThatCannotBeRestored(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("restore-fail", pool.Refillers) // each may work on one
	if err := e.SetPool(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "pool of plain shells", func() bool { return e.Pools()[0].Ready == 2 })
	for _, m := range e.ReadyShells() {
		if m.Prepared {
			t.Error("a shell was prepared")
		}
	}
	h.Fault("restore-fail", 1)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1})
	if err != nil || !errors.Is(r.Children[0].Err, storeerr.ErrNotRestorable) {
		t.Errorf("fork: %+v, %v", r, err)
	}
}
