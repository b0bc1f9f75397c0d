package fakeengine

import (
	"context"
	"encoding/json"
	"io"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// away is a sandbox that another daemon has taken.
type away struct{ owner, to, claim string }

// Handover describes a paused sandbox, or gives it up. From the description on, its snapshot exists.
func (l lives) Handover(_ context.Context, id string, req sandbox.HandoverRequest) (sandbox.Handover, error) {
	e := l.e
	e.mu.Lock()
	defer e.mu.Unlock()
	missing := sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s not found", sandbox.Clip(id))
	if m, gone := e.away[id]; gone && (req.Owner == nil || *req.Owner == m.owner) {
		if req.Claim == "" || req.Claim != m.claim {
			return sandbox.Handover{}, sandbox.MovedAway(id, m.owner, m.to)
		}
		return sandbox.Handover{ID: id, Owner: m.owner}, nil
	}
	b, ok := e.entries[id]
	if !ok || req.Owner != nil && *req.Owner != b.info.Owner {
		return sandbox.Handover{}, missing
	}
	info, err := sandbox.Portable(b.info)
	if err != nil {
		return sandbox.Handover{}, err
	}
	record, err := json.Marshal(struct {
		Info sandbox.Info
		Env  map[string]string
	}{info, b.env})
	h := sandbox.Handover{ID: id, Owner: info.Owner, PausedIn: info.PausedIn, PausedHash: info.PausedHash, Record: record}
	switch {
	case err != nil:
		return sandbox.Handover{}, err
	case req.Claim == "":
		snap := e.snapshots[info.SnapshotTag]
		snap.Tag, snap.Owner, snap.Transient, snap.ContentHash = info.PausedIn, info.Owner, true, info.PausedHash
		e.snapshots[info.PausedIn] = snap
		return h, nil
	case req.PausedIn != info.PausedIn || req.PausedHash != info.PausedHash:
		return sandbox.Handover{}, sandbox.Errorf(sandbox.ErrConflict, "",
			"sandbox %s is not paused any more in snapshot %s", id, req.PausedIn)
	}
	if e.away == nil {
		e.away = map[string]away{}
	}
	e.away[id] = away{info.Owner, req.To, req.Claim}
	delete(e.entries, id)
	delete(e.disks, info.PausedIn)
	delete(e.snapshots, info.PausedIn)
	b.guest.close()
	return h, nil
}

// Take takes a paused sandbox from another daemon. It keeps no record of attempts.
func (l lives) Take(ctx context.Context, req sandbox.TakeRequest) (sandbox.Info, error) {
	e := l.e
	if req.From == nil {
		return sandbox.Info{}, sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s not found", req.ID)
	}
	if e.Drain.On() {
		return sandbox.Info{}, sandbox.ErrDraining
	}
	h, err := req.From.Describe(ctx, req.ID)
	if err != nil {
		return sandbox.Info{}, err
	}
	var p struct {
		Info sandbox.Info
		Env  map[string]string
	}
	if err := json.Unmarshal(h.Record, &p); err != nil || p.Info.ID != req.ID {
		return sandbox.Info{}, sandbox.Errorf(sandbox.ErrInvalid, "", "the record of sandbox %s is not readable", req.ID)
	}
	if req.Admit != nil {
		if err := req.Admit(p.Info.Shape.MemoryMiB); err != nil {
			return sandbox.Info{}, err
		}
	}
	if err := req.From.Snapshot(ctx, h, func(r io.Reader) error {
		_, err := e.ImportSnapshot(ctx, sandbox.ImportRequest{Tag: h.PausedIn, Owner: h.Owner, PauseOf: h.ID}, r)
		return err
	}); err != nil {
		return sandbox.Info{}, err
	}
	if err := req.From.Give(ctx, req.ID, sandbox.HandoverRequest{Claim: "00000000000000000000000000000001",
		PausedIn: h.PausedIn, PausedHash: h.PausedHash, To: req.Node}); err != nil {
		return sandbox.Info{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.away, req.ID)
	e.entries[req.ID] = &entry{info: p.Info, env: p.Env, guest: newGuest(p.Env, nil)}
	return p.Info, nil
}
