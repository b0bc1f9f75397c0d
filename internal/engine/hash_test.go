package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

const stepHashing = "hashing"

// doomedToHash makes snapshots without any digests before it is killed.
func (e *Engine) doomedToHash(ctx context.Context) error {
	e.traffic.Enter() // makes hashing wait
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
	fmt.Println("at", stepHashing)
	select {}
}

// verifies waits until a snapshot verifies. Until then the only accepted error is that its digests
// are not ready. It returns how often it got that error.
func (h *host) verifies(e *Engine, tag string) (waited int) {
	h.t.Helper()
	eventually(h.t, "digests of "+tag, func() bool {
		info, err := e.SnapshotInfo(h.t.Context(), tag)
		if err != nil || info.Status != sandbox.SnapshotReady {
			h.t.Fatalf("info of %s: %+v, %v", tag, info, err)
		}
		r, err := e.VerifySnapshot(h.t.Context(), tag)
		switch {
		case err == nil && r.OK() && r.Files > 0:
			return true
		case !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "content digests are not ready yet"):
			h.t.Fatalf("verify %s: %+v, %v", tag, r, err)
		case info.DigestsReady:
			h.t.Fatalf("info of %s says that the digests are ready, verify says: %v", tag, err)
		}
		waited++
		return false
	})
	if info, err := e.SnapshotInfo(h.t.Context(), tag); err != nil || !info.DigestsReady {
		h.t.Errorf("info of %s says that the digests are not ready: %v", tag, err)
	}
	return waited
}

func TestDigestsAreMadeAfterACrash(t *testing.T) {
	h := newHost(t)
	h.makeUpper()
	h.killDaemonAt(stepHashing)
	e := h.open()
	for _, tag := range []string{"b", "d"} {
		h.verifies(e, tag)
	}
}
