package guestfork

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/guestfork/forktree"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// fork answers with the result of the call of this token, which may have been requested before.
func (c *call) fork() {
	if !c.line.forks.Try(time.Now()) {
		c.refuse(forkwire.Errorf(forkwire.Busy, "more than %d forks a second", ForkRate))
		return
	}
	fam, token := c.f.familyOf(c.b.ID()), c.req.Token
	call, first, err := fam.Begin(token, c.req.Again)
	if err != nil {
		c.refuse(asTold(err))
		return
	}
	if first {
		c.f.start(c.b, fam, c.req)
	}
	select {
	case <-call.Done():
	case <-c.ctx.Done(): // the call continues: the guest may ask for it again
		return
	}
	if a := call.Answer(); a.Error != nil {
		c.refuse(a.Error)
	} else {
		_ = c.answer(a, nil)
	}
}

// start runs a call, also if its caller has left.
func (f *Families) start(b *sandboxes.Sandbox, fam *forktree.Family, req forkwire.Request) {
	ctx, done, err := f.cfg.Begin(context.Background())
	if err != nil {
		fam.Finish(req.Token, forkwire.Answer{Error: asTold(err)})
		return
	}
	go func() { // counted by Begin
		defer done()
		g, began := &guestForkOp{f: f, info: b.Info(), family: fam, req: req}, time.Now()
		f.cfg.Log.Info("guest fork: asked for", "sandbox", g.info.ID, "n", req.N)
		a, err := g.run(ctx)
		if err != nil {
			f.cfg.Log.Warn("guest fork failed", "sandbox", g.info.ID, "n", req.N, "err", err)
			a = forkwire.Answer{Error: asTold(err)}
		}
		f.cfg.Acts(sandbox.Act{Action: sandbox.ActFork, By: sandbox.ByGuest, Of: g.info, Count: req.N,
			Took: time.Since(began), Err: err})
		fam.Finish(req.Token, a)
	}()
}

// transientPrefix is the prefix of the tags of intermediate snapshots. The manifest marks a
// snapshot as transient.
const transientPrefix = "gf-"

// guestForkOp is one running fork by a guest.
type guestForkOp struct {
	f      *Families
	info   sandbox.Info
	family *forktree.Family
	req    forkwire.Request
	tag    string // of the intermediate snapshot
}

// run branches the sandbox and forks its children. On error it has no effect: it deletes the
// snapshot if it made one.
func (g *guestForkOp) run(ctx context.Context) (forkwire.Answer, error) {
	if err := g.check(); err != nil { // before it waits for a turn
		return forkwire.Answer{}, err
	}
	leave, err := g.turn(ctx)
	if err != nil {
		return forkwire.Answer{}, err
	}
	defer leave()
	release, err := g.reserve()
	if err != nil {
		return forkwire.Answer{}, err
	}
	defer release()
	counted, err := g.f.cfg.Quota(ctx, g.info, g.req.N)
	if err != nil {
		return forkwire.Answer{}, err
	}
	defer counted()
	g.tag = fmt.Sprintf("%s%s-%s", transientPrefix, g.info.ID, g.req.Token[:8])
	defer g.f.Keep(g.tag)()
	if err := g.branch(ctx); err != nil {
		return forkwire.Answer{}, err
	}
	res, err := g.f.cfg.Operations.Fork(ctx, sandbox.ForkRequest{
		Tag: g.tag, N: g.req.N, Kin: g.info.Kin.Child(g.info.ID, g.req.Token), Network: g.network(),
		HostPorts: g.info.Network.HostPorts,
		Limits:    g.info.Limits, Owner: g.info.Owner, Life: g.info.Life, Labels: g.labels(),
	})
	if err == nil {
		err = noneMade(res)
	}
	if err != nil {
		g.family.Drop(g.req.Token)
		return forkwire.Answer{}, err
	}
	return forkwire.Answer{Children: childrenOf(res)}, nil
}

// network returns the children's policy: the source's current policy, without secrets added by the
// host. It may be narrower than when the guest requested the fork.
func (g *guestForkOp) network() *netpolicy.Spec {
	_, now, err := g.f.cfg.Sandboxes.Find(g.info.ID)
	if err != nil { // it has ended meanwhile
		now = g.info
	}
	p := sandbox.WithoutSecrets(now.Network.Effective)
	return &p
}

// labels returns the children's labels: the source's current ones, as of a branch.
func (g *guestForkOp) labels() map[string]string {
	_, now, err := g.f.cfg.Sandboxes.Find(g.info.ID)
	if err != nil { // it has ended meanwhile
		now = g.info
	}
	return now.Labels
}

// noneMade returns the first child's error if no child was made.
func noneMade(res sandbox.ForkResult) error {
	for _, c := range res.Children {
		if c.Err == nil {
			return nil
		}
	}
	return fmt.Errorf("all %d children failed: %w", len(res.Children), res.Children[0].Err)
}

func childrenOf(res sandbox.ForkResult) []forkwire.Child {
	var out []forkwire.Child
	for _, c := range res.Children {
		child := forkwire.Child{Index: c.Index, ID: c.Info.ID}
		if c.Err != nil {
			child = forkwire.Child{Index: c.Index, Error: forkwire.ClipChild(vmproc.Printable([]byte(c.Err.Error())))}
		}
		out = append(out, child)
	}
	slices.SortFunc(out, func(a, b forkwire.Child) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

// turn waits until this sandbox, and then the daemon, has no other fork to make.
func (g *guestForkOp) turn(ctx context.Context) (leave func(), err error) {
	free, err := g.family.Turn(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case g.f.turns <- struct{}{}:
		return func() { <-g.f.turns; free() }, nil
	case <-ctx.Done():
		free()
		return nil, context.Cause(ctx)
	}
}

// Keep keeps a transient snapshot until its children keep it. release then requests a sweep.
func (f *Families) Keep(tag string) (release func()) {
	f.mu.Lock()
	f.any.Store(true)
	f.held[tag] = true
	f.mu.Unlock()
	return func() {
		f.mu.Lock()
		delete(f.held, tag)
		f.mu.Unlock()
		f.SweepLater()
	}
}

// busyPatience is how long a guest's branch waits for the API's branches.
const busyPatience = 15 * time.Second

func (g *guestForkOp) branch(ctx context.Context) error {
	for end := time.Now().Add(busyPatience); ; {
		_, err := g.f.cfg.Operations.Branch(ctx, sandbox.BranchRequest{SandboxID: g.info.ID, Tag: g.tag, Transient: true})
		if !errors.Is(err, sandbox.ErrBusy) || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
		ctxsleep.For(ctx, 100*time.Millisecond)
	}
}
