package fakeengine

import (
	"context"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// promotions has the engine's method that promotes sandboxes.
type promotions struct{ e *Engine }

// Promote gives the guest of a sandbox to one that it descends from.
func (p promotions) Promote(ctx context.Context, req sandbox.PromoteRequest) (sandbox.Promotion, error) {
	e := p.e
	child, err := e.entry(req.Child)
	if err != nil {
		return sandbox.Promotion{}, err
	}
	if child.info.Status == sandbox.StatusFailed {
		_, err := e.live(req.Child)
		return sandbox.Promotion{}, err
	}
	above, err := above(e, child, sandbox.CanonicalID(req.Place))
	if err != nil {
		return sandbox.Promotion{}, err
	}
	var kept sandbox.BranchResult
	if !req.Discard {
		kept, err = e.Branch(ctx, sandbox.BranchRequest{SandboxID: above.info.ID, Tag: req.Tag, Owner: req.Owner})
		if err != nil {
			return sandbox.Promotion{}, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	held, values, err := sandbox.RenewSecrets(e.Secrets, above.info.Owner, above.info.Secrets)
	if err != nil {
		return sandbox.Promotion{}, err
	}
	above.info.Secrets = sandbox.InheritSecrets(sandbox.SecretsIn(e.Secrets, child.info.Secrets), held)
	above.secrets = values
	above.guest.close()
	above.guest = child.guest
	above.info.PromotedFrom, above.info.PID = child.info.ID, above.info.PID+1000
	above.info.RolledBackTo, above.info.RolledBackHash = "pause-"+child.info.ID+"-00000001", "sha256:feed"
	delete(e.entries, child.info.ID)
	return sandbox.Promotion{Info: above.info, Was: child.info.ID, KeptIn: kept.Tag,
		KeptHash: kept.Snapshot.ContentHash}, nil
}

// above returns the sandbox that a promotion replaces.
func above(e *Engine, child *entry, place string) (*entry, error) {
	e.mu.Lock()
	var sources []string
	if child.info.Kin.Parent != "" {
		sources = append(sources, child.info.Kin.Parent)
	}
	for s, ok := e.snapshots[child.info.SnapshotTag]; ok; s, ok = e.parentLocked(s) {
		if s.BranchedFrom != "" {
			sources = append(sources, s.BranchedFrom)
		}
	}
	e.mu.Unlock()
	if place == "" && len(sources) > 0 {
		place = sources[0]
	}
	if !slices.Contains(sources, place) {
		return nil, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNoPlace,
			"sandbox %s does not descend from sandbox %s", child.info.ID, sandbox.Clip(place))
	}
	if b, err := e.entry(place); err != nil || b.info.Owner != child.info.Owner {
		return nil, sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNoPlace,
			"the sandbox that %s was forked from has ended", child.info.ID)
	}
	return e.live(place)
}
