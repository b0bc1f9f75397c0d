package op_test

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

func TestLimitsThatCannotBeAreRefused(t *testing.T) {
	h := enginefake.NewHost(t) // without cgroups
	e := h.Open()
	h.Snapshot(e, "a")
	for name, c := range map[string]struct {
		limits sandbox.Limits
		kind   error
		says   string
	}{
		"no cgroups":          {sandbox.Limits{MemoryMiB: 512}, sandbox.ErrUnsupported, "cannot be enforced"},
		"too little":          {sandbox.Limits{MemoryMiB: 8}, sandbox.ErrInvalid, "at least 32"},
		"a tree that is none": {sandbox.Limits{Tree: sandbox.TreeBudget{CPUs: 1}}, sandbox.ErrInvalid, "guest_fork"},
		"a small disk":        {sandbox.Limits{DiskMiB: 15}, sandbox.ErrInvalid, "at least 16"},
		"a weight":            {sandbox.Limits{CPUWeight: -1}, sandbox.ErrInvalid, "weight"},
	} {
		_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Limits: c.limits})
		if !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
		enginefake.WantError(t, err, c.kind, c.says)
	}
	if got := h.Fork(e, "a", 1)[0]; got.Limits != (sandbox.Limits{}) {
		t.Errorf("without limits: %+v", got)
	}
}
