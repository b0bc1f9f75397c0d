package op

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// A paused sandbox moves to another daemon, the taker. It reads the sandbox's snapshot from the giver as any other one,
// records its claim, and lets the giver give the sandbox up (package sandboxes, moved.go).

// portable is the content of Handover.Record.
type portable struct {
	Info sandbox.Info     `json:"info"`
	Who  sandbox.Identity `json:"who"`
}

// Handover describes a paused sandbox for another daemon. With a claim it gives it up: from then on it is not resumed
// here. The same claim may be repeated.
func (t *Travels) Handover(ctx context.Context, id string, req sandbox.HandoverRequest) (sandbox.Handover, error) {
	ctx, done, err := t.ops.begin(ctx)
	if err != nil {
		return sandbox.Handover{}, err
	}
	defer done()
	if m, ok := sandboxes.MovedBy(t.ops.sandboxes, id); ok && owned(m.Owner, req.Owner) {
		if req.Claim == "" || req.Claim != m.Claim {
			return sandbox.Handover{}, sandbox.MovedAway(m.ID, m.Owner, m.To)
		}
		return sandbox.Handover{ID: m.ID, Owner: m.Owner, PausedIn: req.PausedIn, PausedHash: req.PausedHash}, nil
	}
	b, info, err := t.ops.sandboxes.Find(id)
	if err != nil || !owned(info.Owner, req.Owner) {
		return sandbox.Handover{}, noSandbox(id)
	}
	if req.Claim == "" {
		return describe(b, info)
	}
	if token, err := hex.DecodeString(req.Claim); err != nil || len(token) != claimBytes || len(req.To) > maxNodeName {
		return sandbox.Handover{}, sandbox.Errorf(sandbox.ErrInvalid, "", "the claim on sandbox %s is not of a daemon",
			info.ID)
	}
	leave, err := b.Await(ctx)
	if err != nil {
		return sandbox.Handover{}, err
	}
	defer leave()
	return t.give(b, req)
}

const (
	claimBytes  = 16
	maxNodeName = 253
)

func owned(owner string, want *string) bool { return want == nil || owner == *want }

func noSandbox(id string) error {
	return sandbox.Errorf(sandbox.ErrNotFound, "", "sandbox %s not found", sandbox.Clip(id))
}

func describe(b *sandboxes.Sandbox, info sandbox.Info) (sandbox.Handover, error) {
	info, err := sandbox.Portable(info)
	if err != nil {
		return sandbox.Handover{}, err
	}
	record, err := json.Marshal(portable{info, b.Who()})
	if err == nil && len(record) > sandbox.MaxHandover {
		err = sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonSandboxBound,
			"sandbox %s cannot move to another daemon: its environment and its labels are too large", info.ID)
	}
	return sandbox.Handover{ID: info.ID, Owner: info.Owner, PausedIn: info.PausedIn, PausedHash: info.PausedHash,
		Record: record}, err
}

// give gives a sandbox up. The caller has its turn.
func (t *Travels) give(b *sandboxes.Sandbox, req sandbox.HandoverRequest) (sandbox.Handover, error) {
	_, info, err := t.ops.sandboxes.Find(b.ID()) // another claim may have had its turn
	if err != nil {
		return sandbox.Handover{}, err
	}
	h, err := describe(b, info)
	if err != nil {
		return sandbox.Handover{}, err
	}
	was, err := sandboxes.GiveUp(b, sandboxes.Claim{Tag: req.PausedIn, Hash: req.PausedHash},
		sandboxes.Moved{ID: info.ID, Owner: info.Owner, To: req.To, Claim: req.Claim, At: t.ops.cfg.Now().UTC()})
	if err != nil {
		return sandbox.Handover{}, err
	}
	about := was.About()
	if req.To != "" {
		about[sandbox.EventKeyNode] = req.To
	}
	t.ops.cfg.Logger.Info("moved to another daemon", "sandbox", was.ID, "node", req.To)
	t.ops.cfg.Tell(sandbox.EventMoved, was.ID, about)
	sandboxes.ForgetMoved(t.ops.sandboxes)
	return h, nil
}

// Take takes a paused sandbox from another daemon. It is paused here then, under its own id. On failure the giver keeps
// it, or the claim stays recorded until the giver has answered.
func (t *Travels) Take(ctx context.Context, req sandbox.TakeRequest) (sandbox.Info, error) {
	ctx, done, err := t.ops.begin(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer done()
	t.settling.Lock()
	a, err := sandboxes.OpenArrival(t.ops.sandboxes, req.ID)
	_, info, missing := t.ops.sandboxes.Find(req.ID)
	t.settling.Unlock()
	switch {
	case err != nil:
		return sandbox.Info{}, err
	case a == nil && missing == nil && owned(info.Owner, req.Owner): // a repeated request has taken it
		return info, nil
	case a == nil && req.From == nil:
		return sandbox.Info{}, noSandbox(req.ID)
	case a == nil:
		leave, err := t.ops.Drain.Enter()
		if err != nil {
			return sandbox.Info{}, err
		}
		defer leave()
		return t.takeNew(ctx, req)
	case !owned(a.Info().Owner, req.Owner):
		return sandbox.Info{}, noSandbox(req.ID)
	case req.Again == nil:
		return sandbox.Info{}, unsettled(a.Info().ID, a.Claim().From, errors.New("this daemon asks no peers"))
	}
	from, err := req.Again(a.Claim().From)
	if err != nil {
		return sandbox.Info{}, unsettled(a.Info().ID, a.Claim().From, err)
	}
	err = ask(ctx, from, a, req.Node)
	if err != nil && !keeps(err) { // that it is unknown there is no proof by now
		return sandbox.Info{}, unsettled(a.Info().ID, a.Claim().From, err)
	}
	if err != nil {
		return sandbox.Info{}, errors.Join(err, t.dropArrival(a))
	}
	return t.settle(a)
}

// keeps reports whether a giver has said with this error that it keeps the sandbox.
func keeps(err error) bool {
	var told *sandbox.Error
	return errors.Is(err, sandbox.ErrConflict) || errors.As(err, &told) && told.Reason() == sandbox.ReasonSandboxBound
}

func unsettled(id, from string, err error) error {
	return sandbox.Detailed(sandbox.Errorf(sandbox.ErrNoResources, sandbox.ReasonSandboxUnsettled,
		"sandbox %s is copied, and it is not known whether %s has given it up; repeat the request: %w", id, from, err),
		"sandbox", id)
}

// takeNew takes a sandbox without an earlier claim.
func (t *Travels) takeNew(ctx context.Context, req sandbox.TakeRequest) (_ sandbox.Info, err error) {
	var u undo.Stack
	defer u.OnError(&err)
	h, err := req.From.Describe(ctx, req.ID)
	if err != nil {
		return sandbox.Info{}, err
	}
	info, who, err := t.judgeHandover(h, req)
	if err != nil {
		return sandbox.Info{}, err
	}
	if info.Network, err = t.networkHere(info); err != nil {
		return sandbox.Info{}, err
	}
	if req.Admit != nil {
		if err := req.Admit(info.Shape.MemoryMiB); err != nil {
			return sandbox.Info{}, err
		}
	}
	t.clearTag(info)
	if err := catalog.AwaitDeleted(ctx, t.ops.catalog, info.PausedIn); err != nil {
		return sandbox.Info{}, err
	}
	a, err := sandboxes.BeginArrival(t.ops.sandboxes, info, who)
	if err != nil {
		return sandbox.Info{}, err
	}
	keep := false
	u.Push(func() {
		if !keep {
			t.ops.cfg.Logger.Debug("drop a sandbox that was not taken", "sandbox", info.ID, "err", t.dropArrival(a))
		}
	})
	if err := t.copyPause(ctx, a, h, req); err != nil {
		return sandbox.Info{}, err
	}
	failpoint.Here(failpoint.MoveAsked)
	err = ask(ctx, req.From, a, req.Node)
	if err != nil && !keeps(err) && !errors.Is(err, sandbox.ErrNotFound) {
		keep = true
		return sandbox.Info{}, unsettled(info.ID, a.Claim().From, err)
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	keep = true
	return t.settle(a)
}

// judgeHandover returns the sandbox that another daemon offers, if it may be taken.
func (t *Travels) judgeHandover(h sandbox.Handover, req sandbox.TakeRequest) (sandbox.Info, sandbox.Identity, error) {
	if h.ID != sandbox.CanonicalID(req.ID) || !sandbox.ValidID(h.ID) || !owned(h.Owner, req.Owner) {
		return sandbox.Info{}, sandbox.Identity{}, sandbox.Errorf(sandbox.ErrInvalid, "",
			"peer %s offers another sandbox than %s", req.From.Name(), sandbox.Clip(req.ID))
	}
	info, who, err := openHandover(h, t.ops.cfg.Now())
	if errors.Is(err, errRecord) {
		err = sandbox.Errorf(sandbox.ErrInvalid, "",
			"the record of sandbox %s is not readable; is peer %s of another version? %w", h.ID, req.From.Name(), err)
	}
	return info, who, err
}

var errRecord = errors.New("not a record of this version")

// openHandover decodes the record of a sandbox that another daemon offers, and checks all that it has.
func openHandover(h sandbox.Handover, now time.Time) (sandbox.Info, sandbox.Identity, error) {
	if len(h.Record) > sandbox.MaxHandover {
		return sandbox.Info{}, sandbox.Identity{}, fmt.Errorf("%w: it has more than %d bytes", errRecord, sandbox.MaxHandover)
	}
	var p portable
	d := json.NewDecoder(bytes.NewReader(h.Record))
	d.DisallowUnknownFields() // of a later version: a property that binds it may be among them
	if err := d.Decode(&p); err != nil {
		return sandbox.Info{}, sandbox.Identity{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	info, err := sandbox.Portable(p.Info)
	if err == nil {
		err = sandbox.StoreError(errors.Join(snapshot.CheckTag(info.PausedIn), snapshot.CheckTag(info.SnapshotTag)))
	}
	if err == nil {
		err = sandbox.CheckTaken(h, info, p.Who, now)
	}
	return info, p.Who, err
}

// networkHere judges a sandbox's policy under the ceiling of this daemon. The sandbox is not taken if it would have
// another network here.
func (t *Travels) networkHere(info sandbox.Info) (sandbox.Network, error) {
	was := info.Network
	n, err := t.ops.wires.Judge(was.Asked, netpolicy.HostGrant{})
	if err != nil {
		return sandbox.Network{}, err
	}
	n.Effective = info.Limits.OfNetwork(n.Effective)
	why := n.Warning
	if before, now := textOf(was.Effective), textOf(n.Effective); why == "" && before != now {
		why = cmp.Or(strings.Join(n.Cut, "; "), "the ceilings of the daemons differ")
	}
	if why != "" {
		return sandbox.Network{}, sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonSandboxBound,
			"sandbox %s would have another network at this daemon: %s", info.ID, why)
	}
	return n, nil
}

// textOf returns a policy in a form for comparisons.
func textOf(s netpolicy.Spec) string {
	b, _ := json.Marshal(s) // it has no values that fail
	return string(b)
}

// clearTag deletes the snapshot of an earlier attempt that was interrupted.
func (t *Travels) clearTag(info sandbox.Info) {
	en, err := t.ops.store.Get(info.PausedIn)
	if err != nil || en.Manifest == nil || en.Manifest.Branch == nil || !en.Manifest.Branch.Transient ||
		en.Manifest.Owner != info.Owner {
		return
	}
	dropUnused(t.ops, info.ID, en.Tag, en.ContentHash)
}

// copyPause copies the snapshot of a paused sandbox, and records the claim on the sandbox.
func (t *Travels) copyPause(ctx context.Context, a *sandboxes.Arrival, h sandbox.Handover,
	req sandbox.TakeRequest) error {
	info := a.Info()
	err := req.From.Snapshot(ctx, h, func(r io.Reader) error {
		_, err := t.ImportSnapshot(ctx, sandbox.ImportRequest{Tag: info.PausedIn, Owner: info.Owner, PauseOf: info.ID}, r)
		return err
	})
	if err != nil {
		return fmt.Errorf("copy the snapshot of sandbox %s: %w", info.ID, err)
	}
	failpoint.Here(failpoint.MoveCopied)
	made, err := t.ops.store.Get(info.PausedIn)
	if err != nil {
		return sandbox.StoreError(err)
	}
	if made.Manifest.Shape != info.Shape || diskBytes(made.Manifest) != info.DiskBytes {
		return sandbox.Errorf(sandbox.ErrInvalid, "",
			"peer %s describes sandbox %s with another shape than its snapshot has", req.From.Name(), info.ID)
	}
	token, err := t.ops.random(claimBytes)
	if err != nil {
		return err
	}
	return a.Record(sandboxes.Claim{From: req.From.Name(), Token: hex.EncodeToString(token), Tag: h.PausedIn,
		Hash: h.PausedHash}, made.ContentHash)
}

// ask makes the giver give the sandbox up.
func ask(ctx context.Context, from sandbox.Giver, a *sandboxes.Arrival, node string) error {
	c := a.Claim()
	err := from.Give(context.WithoutCancel(ctx), a.Info().ID, sandbox.HandoverRequest{Claim: c.Token, PausedIn: c.Tag,
		PausedHash: c.Hash, To: node})
	failpoint.Here(failpoint.MoveAnswered)
	return err
}

// settle lists a sandbox whose giver has given it up. A repeated request may have listed it by now.
func (t *Travels) settle(a *sandboxes.Arrival) (sandbox.Info, error) {
	t.settling.Lock()
	defer t.settling.Unlock()
	if _, info, err := t.ops.sandboxes.Find(a.Info().ID); err == nil {
		return info, nil
	}
	if err := a.Take(); err != nil {
		return sandbox.Info{}, err
	}
	info := a.Info()
	t.ops.cfg.Logger.Info("taken from another daemon", "sandbox", info.ID, "from", a.Claim().From)
	t.ops.cfg.Tell(sandbox.EventTaken, info.ID, info.About())
	return info, nil
}

// dropArrival ends the arrival of a sandbox that its giver keeps, and deletes its snapshot.
func (t *Travels) dropArrival(a *sandboxes.Arrival) error {
	if err := a.Drop(); err != nil {
		return err
	}
	t.clearTag(a.Info())
	return nil
}

// ofPause marks a snapshot that was received for a paused sandbox. It is deleted with its last user.
func ofPause(m *snapshot.Manifest, id string) {
	if id != "" {
		m.Branch = &snapshot.Branch{Sandbox: id, Mode: string(sandbox.BranchDiff), Transient: true}
	}
}
