package fakeengine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/receipt"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Rollback gives a sandbox a new guest without any earlier state.
func (e *Engine) Rollback(ctx context.Context, id, tag string) (sandbox.Info, error) {
	recordSteps(ctx, "turn", "restore", "populate", "start", "identity", "exchange", "end")
	if err := snapshot.CheckTag(tag); err != nil {
		return sandbox.Info{}, sandbox.StoreError(err)
	}
	b, err := e.live(id)
	if err != nil {
		return sandbox.Info{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	tags := e.ancestryLocked(b)
	if _, err := e.snapshotLocked(tag); err != nil {
		return sandbox.Info{}, fmt.Errorf("%w; these would do: %s", err, strings.Join(tags, ", "))
	}
	if !slices.Contains(tags, tag) {
		return sandbox.Info{}, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNotInAncestry,
			"sandbox %s did not come from snapshot %s; these would do: %s", id, tag, strings.Join(tags, ", "))
	}
	held, values, err := sandbox.RenewSecrets(e.Secrets, b.info.Owner, b.info.Secrets)
	if err != nil {
		return sandbox.Info{}, err
	}
	r := forkReceipt(b.info, e.snapshots[tag])
	r.Op = receipt.Rollback
	r.Before, _ = b.info.Base()
	e.recordLocked(r, e.Now)
	b.info.RolledBackTo, b.info.RolledBackHash, b.info.PID = tag, e.snapshots[tag].ContentHash, b.info.PID+1000
	b.info.PromotedFrom = ""
	b.info.Secrets = sandbox.InheritSecrets(secretsOf(e.snapshots[tag]), held)
	b.secrets = values
	b.guest.close()
	b.guest = newGuest(b.env, e.disks[tag])
	return b.info, nil
}
