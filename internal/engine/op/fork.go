package op

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/steps"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/vm/startgate"
)

// forkOp is one running Fork.
type forkOp struct {
	e        *Ops
	req      sandbox.ForkRequest
	start    time.Time
	began    int64    // start as a time of startgate.Now
	ids      []string // of the children
	src      *launch.Source
	network  sandbox.Network           // of each child, except for its wire and its place in a private network
	members  map[string]sandbox.Member // places in a private network, by child; may be nil
	children []child
	rec      *steps.Recorder // gets the children's steps for the request's trace; may be nil
	volumes  []forkVolume    // of each child
	// secrets are those that each child may contain, and values those given to it, by variable.
	secrets []sandbox.HeldSecret
	values  map[string]string
	// agent replaces the children's agents, which then have the capabilities of demand. It is nil if they keep theirs.
	agent  *launch.AgentProgram
	demand []string
	group  *memberCopies    // nil if it is not a part of the fork of a group
	grant  *admission.Grant // admits the memory and disk of the children
}

// child is a child that is not listed yet.
type child struct {
	index   int // 1 to N
	m       *launch.VM
	trace   trace
	wire    *network.Wire             // nil if it needs no network
	bounds  vmproc.Bounds             // resource limits
	who     sandbox.Identity          // empty if it was not reached
	answer  *agentv1.IdentityResponse // nil if its guest sent no answer
	release func()                    // returns its part of the grant
	armed   time.Duration             // time until it was restored and at its start gate
	resumed time.Duration
	ready   time.Duration
	err     error
	info    sandbox.Info
	listed  bool           // it is a sandbox
	renewed bool           // its agent was replaced
	agent   snapshot.Agent // its new agent, if it was replaced
}

// Fork makes N children of a snapshot. Each succeeds or fails independently. An error means that
// Fork did not try any child, or that ctx ended and all children have been removed.
//
// All children of a lot are restored before the first one runs: on a host with few CPUs the guests'
// own work would delay the remaining restores. Then each child starts when its identity can follow
// immediately. The first child is thus ready long before the last, and no child runs for long on a
// random state it shares with its siblings.
func (o *Ops) Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	return fork(ctx, o, req, nil)
}

// fork forks the children of a request, or of one member of a group.
func fork(
	ctx context.Context, o *Ops, req sandbox.ForkRequest, of *memberCopies,
) (_ sandbox.ForkResult, err error) {
	start := o.cfg.Now()
	ctx, done, err := o.begin(ctx)
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	defer done()
	leave, err := o.Drain.Enter()
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	defer leave()
	if req.N < 1 || req.N > sandbox.MaxFork {
		return sandbox.ForkResult{}, sandbox.Errorf(sandbox.ErrInvalid, "", "n is %d, want 1 to %d", req.N, sandbox.MaxFork)
	}
	if err := sandbox.CheckEnv(req.Env); err != nil {
		return sandbox.ForkResult{}, err
	}
	if err := sandbox.CheckLabels(req.Labels); err != nil {
		return sandbox.ForkResult{}, err
	}
	if err := sandbox.CheckVolumes(req.Volumes, req.N); err != nil {
		return sandbox.ForkResult{}, err
	}
	if req.Identity && !o.cfg.Identity {
		return sandbox.ForkResult{}, sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonIdentityOff,
			"fork %s: this daemon issues no identity tokens", req.Tag)
	}
	req.Kin.MayFork, req.Kin.Identity = req.Kin.MayFork || req.GuestFork, req.Kin.Identity || req.Identity
	if err := checkLimits(o.procs, req); err != nil {
		return sandbox.ForkResult{}, err
	}
	if req.Life, err = req.Life.Set(start); err != nil {
		return sandbox.ForkResult{}, err
	}
	given, values, err := sandbox.GiveSecrets(o.cfg.Secrets, req.Owner, req.Secrets, req.Env)
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	o.traffic.Enter()
	defer o.traffic.LeaveSoon()
	f := &forkOp{e: o, req: req, start: start, began: startgate.Now(), children: make([]child, req.N), values: values,
		group: of, rec: steps.From(ctx)}
	if f.src, err = o.openForkSource(ctx, req.Tag); err != nil {
		return sandbox.ForkResult{}, err
	}
	if f.src.VolumeSet != nil && len(req.Volumes) > 0 {
		f.src.WorkingSet = f.src.VolumeSet
	}
	f.secrets = sandbox.InheritSecrets(f.src.Files.Manifest.Secrets, given)
	if f.req.Kin.MayFork && f.req.Kin.Root == "" && len(f.src.Backing) > 0 { // each child is the root of a tree
		f.req.Kin.Base = len(f.src.Backing[0])
	}
	defer f.src.Close()
	if err := f.checkAgent(); err != nil {
		return sandbox.ForkResult{}, err
	}
	defer f.agent.Close()
	poolReady := o.pools.Count(f.src)
	if f.grant, err = admitChildren(o, f.src, req, poolReady); err != nil {
		o.cfg.tellRefused("fork", req.Tag, err)
		return sandbox.ForkResult{}, fmt.Errorf("fork %s: %w", req.Tag, err)
	}
	defer f.grant.Release()
	if err = f.name(); err != nil {
		return sandbox.ForkResult{}, err
	}
	release, err := f.openVolumes(ctx)
	if err != nil {
		return sandbox.ForkResult{}, fmt.Errorf("fork %s: %w", req.Tag, err)
	}
	defer release()
	leaveNetwork, err := f.joinNetwork()
	if err != nil {
		return sandbox.ForkResult{}, err
	}
	defer leaveNetwork()
	if err := f.bind(ctx); err != nil {
		return sandbox.ForkResult{}, err
	}
	o.pools.Touch(req.Tag, f.src.Shape())
	f.makeChildren(ctx)
	o.pools.Wake()
	if ctx.Err() != nil {
		f.takeBack()
		err := sandbox.Ended(ctx, fmt.Errorf("fork %s: %w", req.Tag, context.Cause(ctx)))
		o.cfg.Observer.Observe(sandbox.OpFork, o.cfg.Now().Sub(start), err)
		return sandbox.ForkResult{}, err
	}
	o.cfg.Observer.Observe(sandbox.OpFork, o.cfg.Now().Sub(start), nil)
	r := f.result(poolReady)
	f.leaveReceipts()
	o.cfg.Logger.Info("forked", "tag", req.Tag, "n", req.N, "shells", poolReady, "armed", r.ArmedWall, "ready",
		r.ReadyWall)
	return r, nil
}

// ForkLot is the number of children restored before the first of them runs.
const ForkLot = 100

// makeChildren makes the children in lots, as the last of a thousand is restored a minute after the
// first.
func (f *forkOp) makeChildren(ctx context.Context) {
	// A restore only computes and never waits, so running more of them than there are CPUs slows
	// them all down.
	atOnce := f.grant.AtOnce(f.e.cfg.Concurrency)
	before := 0
	for lot := range slices.Chunk(f.children, ForkLot) {
		sched.Each(len(lot), max(1, atOnce/2), func(i int) { f.restore(ctx, &lot[i], before+i+1) })
		f.meet(ctx)
		sched.Each(len(lot), atOnce, func(i int) {
			f.resume(ctx, &lot[i])
			f.identify(ctx, &lot[i])
			f.unbind(&lot[i])
			f.tell(&lot[i])
		})
		before += len(lot)
	}
}

// checkLimits refuses invalid or unsupported limits before any child is made.
func checkLimits(procs *vmproc.Supervisor, req sandbox.ForkRequest) error {
	if err := req.Limits.Check(req.Kin.MayFork); err != nil {
		return err
	}
	return procs.CheckLimits(req.Limits)
}

// restore restores one child. Its vCPUs then wait at the start gate.
func (f *forkOp) restore(ctx context.Context, b *child, index int) {
	begin := f.e.cfg.Now()
	b.index, b.trace = index, f.e.newTrace(f.start)
	b.bounds = vmproc.Bounds{Limits: f.req.Limits, Tree: f.req.Kin.RootOf(f.childID(index)), Owner: f.req.Owner}
	b.trace.mark("turn")
	if b.err = context.Cause(ctx); b.err != nil {
		return
	}
	b.release = f.grant.One()
	b.err = f.restoreInto(ctx, b)
	b.armed = f.e.cfg.Now().Sub(f.start)
	b.trace.mark("restore")
	failpoint.Here(failpoint.ForkRestored)
	f.e.cfg.Observer.Observe(sandbox.OpRestore, f.e.cfg.Now().Sub(begin), b.err)
	if b.err != nil {
		b.err = fmt.Errorf("restore child %d: %w", index, b.err)
		b.release()
		return
	}
	f.e.cfg.Tell(sandbox.EventCreated, f.childID(index), f.about(b).About())
}

// about describes a child that is not listed yet, or no longer listed.
func (f *forkOp) about(b *child) sandbox.Info {
	i := sandbox.Info{ID: f.childID(b.index), SnapshotTag: f.req.Tag, Index: b.index}
	if b.err != nil {
		i.Reason = b.err.Error()
	}
	return i
}

// resume starts one child. If the fork was cancelled, identify ends the child.
func (f *forkOp) resume(ctx context.Context, b *child) {
	if b.err != nil || ctx.Err() != nil {
		return
	}
	b.trace.mark("turn")
	at, err := f.enter(ctx, b)
	if err == nil {
		b.resumed = time.Duration(at - f.began)
		failpoint.Here(failpoint.ForkResumed)
		return
	}
	b.err = fmt.Errorf("resume child %d: %w", b.index, err)
	b.release()
}

// enter populates a child's working set, opens its start gate, and waits until its vCPUs run. A
// prepared VM may have died unnoticed in the pool; enter then tries the next one.
func (f *forkOp) enter(ctx context.Context, b *child) (int64, error) {
	for {
		if f.agent == nil {
			f.e.launcher.DialIdentity(ctx, f.src, b.m)
		}
		f.e.launcher.Populate(ctx, f.src, b.m, b.index)
		b.trace.mark("populate")
		at, err := f.e.launcher.Enter(ctx, f.src, b.m)
		b.trace.mark("start")
		if err == nil {
			return at, nil
		}
		died := vmproc.EndedWith(b.m.VM, err)
		if died {
			err = b.m.EndError()
		}
		b.m.Discard()
		if !died || !b.m.Prepared || ctx.Err() != nil {
			return 0, err
		}
		if err := f.restoreInto(ctx, b); err != nil {
			return 0, err
		}
	}
}

// take returns a shell of the pool.
func (f *forkOp) take() *launch.VM {
	if len(f.src.Tops) > 0 || f.group != nil { // a prepared shell has its disks and its connections already
		return nil
	}
	return f.e.pools.Take(f.src)
}

// restoreInto restores a child, in a shell from the pool if there is one.
func (f *forkOp) restoreInto(ctx context.Context, b *child) (err error) {
	for {
		if b.m, err = f.e.launcher.LaunchArmed(ctx, f.src, f.take, b.wire, b.bounds); err != nil || len(f.volumes) == 0 {
			return err
		}
		if err = f.plug(ctx, b); err == nil {
			return nil
		}
		died := b.m.Pooled && !b.m.Alive() // unnoticed, in the pool
		b.m.Discard()
		if !died || ctx.Err() != nil {
			return err
		}
	}
}

// tell reports the result of a child, also to the caller if it asked for each child separately.
func (f *forkOp) tell(b *child) {
	if b.err != nil && b.index > 0 {
		f.e.cfg.Tell(sandbox.EventFailed, f.childID(b.index), f.about(b).About())
	}
	if f.req.Each != nil {
		f.req.Each(sandbox.Child{Index: b.index, Info: b.info, Err: b.err})
	}
}

// takeBack ends the children of a cancelled fork.
func (f *forkOp) takeBack() {
	sched.Each(len(f.children), 4*f.e.cfg.Concurrency, func(i int) {
		b := &f.children[i]
		if b.err != nil || b.m == nil {
			return
		}
		if listed := f.e.sandboxes.Lookup(b.info.ID); listed != nil {
			f.e.sandboxes.End(listed)
		}
	})
}

func (f *forkOp) result(poolReady int) sandbox.ForkResult {
	r := sandbox.ForkResult{PoolReady: poolReady, Children: make([]sandbox.Child, 0, len(f.children))}
	for i := range f.children {
		b := &f.children[i]
		r.Children = append(r.Children, sandbox.Child{Index: b.index, Info: b.info, Err: b.err})
		if b.err != nil {
			f.e.cfg.Logger.Warn("fork: a child failed", "tag", f.req.Tag, "index", b.index, "err", b.err)
			continue
		}
		r.ArmedWall = max(r.ArmedWall, b.armed)
		r.ReadyWall = max(r.ReadyWall, b.ready)
	}
	return r
}

// openForkSource opens a snapshot and counts the fork as a user of it until close.
func (o *Ops) openForkSource(ctx context.Context, tag string) (*launch.Source, error) {
	leave, err := o.catalog.Use(ctx, tag)
	if err != nil {
		return nil, err
	}
	s, err := o.OpenSource(tag)
	if err != nil {
		leave()
		return nil, err
	}
	s.Leave = leave
	if err := o.catalog.RefuseDamaged(s.Files.Manifest); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// OpenSource opens a snapshot for a user that does not block its deletion.
func (o *Ops) OpenSource(tag string) (*launch.Source, error) {
	if s := o.pools.Source(tag); s != nil {
		return s, nil
	}
	files, err := o.store.Open(tag)
	if err != nil {
		return nil, sandbox.StoreError(err)
	}
	return launch.NewSource(files), nil
}

// newIDs returns n ids. Each is independently random, so a child's id reveals no sibling's id.
func newIDs(o *Ops, n int) ([]string, error) {
	random, err := o.random(n * sandbox.IDBytes)
	if err != nil {
		return nil, err
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = o.cfg.NodeKey.NewID(random[i*sandbox.IDBytes:])
	}
	return ids, nil
}

// childID returns the id of a child by its index, from 1 on.
func (f *forkOp) childID(index int) string { return f.ids[index-1] }

// openBase opens the snapshot under a sandbox, either its retired files or by its tag.
func (o *Ops) openBase(ctx context.Context, info sandbox.Info) (*launch.Source, error) {
	tag, hash := info.Base()
	for {
		files, err := o.catalog.OpenRetired(hash)
		if err == nil {
			return launch.NewSource(files), nil
		}
		if errors.Is(err, storeerr.ErrNotRestorable) {
			return nil, err
		}
		src, err := o.openForkSource(ctx, tag)
		if err == nil && src.Hash() == hash {
			return src, nil
		}
		if err == nil {
			src.Close()
			err = sandbox.Errorf(sandbox.ErrConflict, "",
				"snapshot %s was replaced, and the version this sandbox was forked from is gone", tag)
		}
		if now := catalog.TagOf(o.catalog, hash); now != "" && now != tag { // it was renamed meanwhile
			tag = now
			continue
		}
		if !o.catalog.AwaitRetired(ctx, tag, hash) {
			return nil, err
		}
	}
}
