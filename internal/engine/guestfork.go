package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/agentproto/forkwire"
	"github.com/forkd/forkd/internal/engine/guestfork/forktree"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/sandbox"
)

// guests is what the engine knows of the forks that guests make.
type guests struct {
	// turns has a value for each branch for a guest under way: some of the
	// branches that may be are left to the API.
	turns chan struct{}
	sweep chan struct{} // has a value when a transient snapshot may be needed no more
	any   *atomic.Bool  // there may be transient snapshots

	// Guarded by Engine.mu:
	held     map[string]bool             // tags of forks under way
	room     map[string]reservation      // by token of the fork that will fill it
	families map[string]*forktree.Family // by sandbox, see familyOf
	calls    map[string]int              // connections of a sandbox's guest to agentproto.ForkPort
}

// reservation is room in a tree for children that are about to be.
type reservation struct {
	root string
	sandbox.Census
}

func newGuests(branches int) guests {
	return guests{
		turns: make(chan struct{}, max(1, branches/2)), sweep: make(chan struct{}, 1), any: new(atomic.Bool),
		held: map[string]bool{}, room: map[string]reservation{}, families: map[string]*forktree.Family{}, calls: map[string]int{},
	}
}

// fork answers with what came of the call of this token, which may have been
// asked for before.
func (c *guestCall) fork() {
	if !c.line.forks.Try(time.Now()) {
		c.refuse(forkwire.Errorf(forkwire.Busy, "more than %d forks a second", guestForkRate))
		return
	}
	f, token := c.e.familyOf(c.b.ID()), c.req.Token
	call, first, err := f.Begin(token, c.req.Again)
	if err != nil {
		c.refuse(asGuestError(err))
		return
	}
	if first {
		c.e.startGuestFork(c.b, f, c.req)
	}
	select {
	case <-call.Done():
	case <-c.ctx.Done(): // the call goes on: it may be asked for again
		return
	}
	if a := call.Answer(); a.Error != nil {
		c.refuse(a.Error)
	} else {
		_ = c.answer(a, nil)
	}
}

// startGuestFork carries out a call, whoever still waits for it.
func (e *Engine) startGuestFork(b *sandboxes.Sandbox, f *forktree.Family, req forkwire.Request) {
	ctx, done, err := e.begin(e.root)
	if err != nil {
		f.Finish(req.Token, forkwire.Answer{Error: asGuestError(err)})
		return
	}
	go func() { // counted by begin
		defer done()
		g := &guestForkOp{e: e, b: b, info: b.Info(), family: f, req: req}
		e.cfg.Logger.Info("guest fork: asked for", "sandbox", g.info.ID, "n", req.N)
		a, err := g.run(ctx)
		if err != nil {
			e.cfg.Logger.Warn("guest fork failed", "sandbox", g.info.ID, "n", req.N, "err", err)
			a = forkwire.Answer{Error: asGuestError(err)}
		}
		f.Finish(req.Token, a)
	}()
}

// transientPrefix begins the tags of the snapshots in between. What makes one
// transient is its manifest.
const transientPrefix = "gf-"

// guestForkOp is one fork by a guest under way.
type guestForkOp struct {
	e      *Engine
	b      *sandboxes.Sandbox
	info   sandbox.Info
	family *forktree.Family
	req    forkwire.Request
	tag    string // of the snapshot in between
}

// run branches the sandbox and forks its children. An error means that nothing
// has happened: a snapshot that was made goes again.
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
	g.tag = fmt.Sprintf("%s%s-%s", transientPrefix, g.info.ID, g.req.Token[:8])
	defer g.pin()()
	if err := g.branch(ctx); err != nil {
		return forkwire.Answer{}, err
	}
	res, err := g.e.Fork(ctx, sandbox.ForkRequest{Tag: g.tag, N: g.req.N, Kin: g.info.Kin.Child(g.info.ID, g.req.Token)})
	if err == nil {
		err = noneMade(res)
	}
	if err != nil {
		g.family.Drop(g.req.Token)
		return forkwire.Answer{}, err
	}
	return forkwire.Answer{Children: childrenOf(res)}, nil
}

// noneMade is the first child's error if no child was made.
func noneMade(res sandbox.ForkResult) error {
	for _, c := range res.Children {
		if c.Err == nil {
			return nil
		}
	}
	return fmt.Errorf("none of %d children could be made: %w", len(res.Children), res.Children[0].Err)
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
	case g.e.guests.turns <- struct{}{}:
		return func() { <-g.e.guests.turns; free() }, nil
	case <-ctx.Done():
		free()
		return nil, context.Cause(ctx)
	}
}

func (g *guestForkOp) check() error {
	if err := g.family.Full(); err != nil {
		return err
	}
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	return g.checkLocked()
}

func (g *guestForkOp) checkLocked() error {
	now := g.e.censusLocked(g.info.Kin.RootOf(g.info.ID))
	return g.e.cfg.GuestFork.Check(g.info.Kin, now, g.req.N, g.info.Shape.MemoryMiB)
}

// reserve takes room in the tree for the children.
func (g *guestForkOp) reserve() (release func(), err error) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	g.e.guests.room[g.req.Token] = reservation{
		g.info.Kin.RootOf(g.info.ID), sandbox.Census{Size: g.req.N, MemoryMiB: g.req.N * g.info.Shape.MemoryMiB},
	}
	return func() {
		g.e.mu.Lock()
		defer g.e.mu.Unlock()
		delete(g.e.guests.room, g.req.Token)
	}, nil
}

// censusLocked counts a tree: what runs, and what is about to.
func (e *Engine) censusLocked(root string) sandbox.Census {
	var now sandbox.Census
	for _, r := range e.guests.room {
		if r.root == root {
			now.Size += r.Size
			now.MemoryMiB += r.MemoryMiB
		}
	}
	e.sandboxes.Each(func(i sandbox.Info) {
		_, reserved := e.guests.room[i.Kin.Token] // then it is counted above
		if i.Kin.RootOf(i.ID) == root && !reserved {
			now.Size++
			now.MemoryMiB += i.Shape.MemoryMiB
		}
	})
	return now
}

// hold keeps the snapshot until its children can, and then has it looked at.
func (g *guestForkOp) pin() (release func()) {
	g.e.mu.Lock()
	g.e.guests.any.Store(true)
	g.e.guests.held[g.tag] = true
	g.e.mu.Unlock()
	return func() {
		g.e.mu.Lock()
		delete(g.e.guests.held, g.tag)
		g.e.mu.Unlock()
		g.e.guests.kick()
	}
}

// busyPatience is how long a guest's branch waits for those of the API.
const busyPatience = 15 * time.Second

func (g *guestForkOp) branch(ctx context.Context) error {
	for end := time.Now().Add(busyPatience); ; {
		_, err := g.e.Branch(ctx, sandbox.BranchRequest{SandboxID: g.info.ID, Tag: g.tag, Transient: true})
		if !errors.Is(err, sandbox.ErrBusy) || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
		sched.Sleep(ctx, 100*time.Millisecond)
	}
}
