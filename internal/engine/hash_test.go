package engine_test

import (
	"context"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

const stepHashing = "hashing"

// doomedToHash makes snapshots without any digests before it is killed.
func doomedToHash(ctx context.Context, e *engine.Engine, _ engine.Config) error {
	e.ForkTraffic().Enter() // makes hashing wait
	if _, err := e.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: "d", Image: "disky"}, nil); err != nil {
		return err
	}
	r, err := e.Fork(ctx, sandbox.ForkRequest{Tag: "d", N: 1})
	if err != nil {
		return err
	}
	if _, err := e.Branch(ctx, sandbox.BranchRequest{SandboxID: r.Children[0].Info.ID, Tag: "b"}); err != nil {
		return err
	}
	enginefake.StopAt(stepHashing)
	return nil
}

func TestDigestsAreMadeAfterACrash(t *testing.T) {
	h := enginefake.NewHost(t)
	h.MakeUpper()
	enginefake.KillDaemonAt(h, "hash", stepHashing)
	e := h.Open()
	for _, tag := range []string{"b", "d"} {
		enginefake.Verifies(h, e, tag)
	}
}
