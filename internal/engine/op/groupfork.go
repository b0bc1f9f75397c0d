package op

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/retention"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// Groups forks whole private networks.
type Groups struct{ e *Ops }

// NewGroups returns Groups.
func NewGroups(o *Ops) *Groups { return &Groups{o} }

// groupOp is one running fork of a group.
type groupOp struct {
	e       *Ops
	req     sandbox.GroupForkRequest
	start   time.Time
	from    privatenets.Network
	members []groupMember // running, by sandbox
	copies  []groupCopy
	undo    undo.Stack
}

// groupMember is a member of the group, and its copies.
type groupMember struct {
	privatenets.Member
	branch *branchOp
	info   sandbox.Info // when it was captured
	forked sandbox.ForkResult
	err    error // of the fork of its copies
}

// groupCopy is a copy of the group.
type groupCopy struct {
	net privatenets.Network
	err error
}

// ForkGroup copies all running sandboxes of a private network as they are at one instant. An error means that no copy
// was made.
func (g *Groups) ForkGroup(ctx context.Context, req sandbox.GroupForkRequest) (sandbox.GroupForkResult, error) {
	leave, err := g.e.Drain.Enter()
	if err != nil {
		return sandbox.GroupForkResult{}, err
	}
	defer leave()
	ctx, done, err := g.e.begin(ctx)
	if err != nil {
		return sandbox.GroupForkResult{}, err
	}
	defer done()
	w := &groupOp{e: g.e, req: req, start: g.e.cfg.Now()}
	defer w.undo.Run()
	r, err := w.run(ctx)
	if err != nil {
		return r, fmt.Errorf("fork network %s: %w", sandbox.Clip(req.Network), err)
	}
	return r, nil
}

func (w *groupOp) run(ctx context.Context) (r sandbox.GroupForkResult, err error) {
	if err := w.find(); err != nil {
		return r, err
	}
	if err := w.admit(); err != nil {
		return r, err
	}
	if err := w.cut(ctx); err != nil {
		return r, err
	}
	failpoint.Here(failpoint.GroupCaptured)
	if err := w.makeNetworks(); err != nil {
		return r, err
	}
	failpoint.Here(failpoint.GroupNetworks)
	w.forkMembers(ctx)
	failpoint.Here(failpoint.GroupForked)
	if err := w.settle(ctx); err != nil {
		return r, err
	}
	return w.result(), nil
}

// find checks the request and finds the running members.
func (w *groupOp) find() (err error) {
	if w.req.N < 1 || w.req.N > sandbox.MaxGroupCopies {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "n is %d, want 1 to %d", w.req.N, sandbox.MaxGroupCopies)
	}
	w.req.Prefix = cmp.Or(w.req.Prefix, w.req.Network)
	if w.from, err = w.e.networks.Get(w.req.Owner, w.req.Network); err != nil {
		return err
	}
	if off := w.e.wires.Off(); off != "" {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetOff, "%s", off)
	}
	if w.from.Forming {
		return sandbox.Errorf(sandbox.ErrConflict, "", "it is being made by another fork of a group")
	}
	for _, m := range w.from.Members {
		if s, _, err := w.e.sandboxes.Running(m.Sandbox); err == nil {
			w.members = append(w.members, groupMember{Member: m, info: s.Info()})
		}
	}
	if len(w.members) == 0 {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonNetworkEmpty, "it has no running member")
	}
	slices.SortFunc(w.members, func(a, b groupMember) int { return cmp.Compare(a.Sandbox, b.Sandbox) })
	return nil
}

// admit asks the caller's quotas, and takes a slot for a branch. The whole group has one.
func (w *groupOp) admit() error {
	memory := 0
	for _, m := range w.members {
		memory += m.info.Shape.MemoryMiB
	}
	if w.req.Admit != nil {
		release, err := w.req.Admit(w.req.N*len(w.members), w.req.N*memory)
		if err != nil {
			return err
		}
		w.undo.Push(release)
	}
	b := &branchOp{e: w.e}
	if err := b.slot(context.Background()); err != nil {
		return err
	}
	w.undo.Push(b.undo.Run)
	return nil
}

// makeNetworks makes the copies' networks, with ids for their sandboxes.
func (w *groupOp) makeNetworks() error {
	all := make([][]privatenets.Member, w.req.N)
	for i := range all {
		ids, err := newIDs(w.e, len(w.members))
		if err != nil {
			return err
		}
		for k, m := range w.members {
			all[i] = append(all[i], privatenets.Member{Sandbox: ids[k], Alias: m.Alias, Addr: m.Addr})
		}
	}
	nets, err := w.e.networks.Copies(w.req.Owner, w.req.Prefix, all)
	if err != nil {
		return err
	}
	for _, n := range nets {
		w.copies = append(w.copies, groupCopy{net: n})
	}
	return nil
}

// forkMembers forks each member's copies. No copy's guest runs before all of its members are restored and bound.
func (w *groupOp) forkMembers(ctx context.Context) {
	meeting := newMeeting(len(w.members), len(w.copies))
	var forks sync.WaitGroup
	for i := range w.members {
		forks.Go(func() {
			m := &w.members[i]
			of := &memberCopies{meeting: meeting}
			for _, c := range w.copies {
				of.places = append(of.places, placeIn(c.net, m.Alias))
			}
			defer of.leave(errAbsent)
			m.forked, m.err = fork(ctx, w.e, w.forkRequest(m), of)
			of.leave(m.err)
		})
	}
	forks.Wait()
}

// forkRequest returns the request for the copies of a member. They have its limits, its life and its labels.
func (w *groupOp) forkRequest(m *groupMember) sandbox.ForkRequest {
	i := m.info
	return sandbox.ForkRequest{Tag: m.branch.req.Tag, N: w.req.N, Owner: w.req.Owner, HostPorts: w.req.HostPorts,
		Limits: i.Limits, Life: i.Life, Labels: retention.Without(i.Labels),
		Kin: sandbox.Kin{MayFork: i.Kin.MayFork, Identity: i.Kin.Identity, Key: i.Kin.Key}}
}

// place is the place of a copy's sandbox in its network.
type place struct {
	id string
	as sandbox.Member
}

func placeIn(n privatenets.Network, alias string) place {
	for _, m := range n.Members {
		if m.Alias == alias {
			return place{m.Sandbox, sandbox.Member{Network: n.Name, NetworkID: n.ID, Alias: alias, Addr: m.Addr}}
		}
	}
	return place{}
}

// settle completes the copies with all sandboxes, and takes the others back. An error means that none is left.
func (w *groupOp) settle(ctx context.Context) error {
	var complete, discard []privatenets.Network
	for i := range w.copies {
		c := &w.copies[i]
		if c.err = w.failure(ctx, i); c.err == nil {
			complete = append(complete, c.net)
			continue
		}
		discard = append(discard, c.net)
		w.end(i)
	}
	if err := w.e.networks.Settle(complete, discard); err != nil && len(complete) > 0 {
		for i := range w.copies {
			w.end(i)
		}
		return errors.Join(err, w.e.networks.Settle(nil, complete))
	}
	if len(complete) == 0 {
		return w.copies[0].err
	}
	return nil
}

// failure returns why a copy is not complete, or nil.
func (w *groupOp) failure(ctx context.Context, i int) error {
	if ctx.Err() != nil {
		return sandbox.Ended(ctx, context.Cause(ctx))
	}
	var because error
	for _, m := range w.members {
		err := m.err
		if err == nil {
			err = m.forked.Children[i].Err
		}
		if err == nil && w.e.sandboxes.Lookup(m.forked.Children[i].Info.ID) == nil {
			err = errors.New("it ended meanwhile")
		}
		if err != nil {
			err = fmt.Errorf("member %s: %w", m.Alias, err)
		}
		if because == nil || errors.Is(because, errAbsent) && err != nil && !errors.Is(err, errAbsent) {
			because = err // the first cause, and not a member that failed for another
		}
	}
	return because
}

// end ends the sandboxes of a copy.
func (w *groupOp) end(i int) {
	for _, m := range w.copies[i].net.Members {
		if s := w.e.sandboxes.Lookup(m.Sandbox); s != nil {
			w.e.sandboxes.End(s)
		}
	}
}

func (w *groupOp) result() sandbox.GroupForkResult {
	r := sandbox.GroupForkResult{Total: w.e.cfg.Now().Sub(w.start)}
	for _, m := range w.members {
		r.Pause = max(r.Pause, m.branch.took.Pause)
	}
	for i, c := range w.copies {
		out := sandbox.GroupCopy{Err: c.err}
		if c.err == nil {
			out.Network, out.NetworkID = c.net.Name, c.net.ID
			for _, m := range w.members {
				out.Sandboxes = append(out.Sandboxes, m.forked.Children[i].Info)
			}
			slices.SortFunc(out.Sandboxes, func(a, b sandbox.Info) int {
				return cmp.Compare(a.Network.Member.Alias, b.Network.Member.Alias)
			})
		}
		r.Copies = append(r.Copies, out)
	}
	w.e.cfg.Logger.Info("forked a group", "network", w.from.Name, "members", len(w.members), "copies", w.req.N,
		"pause", r.Pause, "total", r.Total)
	return r
}
