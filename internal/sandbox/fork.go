package sandbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/agentproto/agentv1"
	"github.com/forkd/forkd/internal/failpoint"
	"github.com/forkd/forkd/internal/layer"
	"github.com/forkd/forkd/internal/snapshot"
	"github.com/forkd/forkd/internal/startgate"
	"github.com/forkd/forkd/internal/vmmctl"
	"github.com/forkd/forkd/internal/vmspec"
)

// forking is one Fork under way.
type forking struct {
	e        *Engine
	req      ForkRequest
	start    time.Time
	began    int64 // the same, of startgate.Now
	idPrefix string
	src      *forkSource
	gate     *startgate.Gate // nil: children run as soon as they are restored
	ahead    bool            // nobody has asked for a child yet: none is to run
	births   []birth
}

// birth is one child on its way into the world.
type birth struct {
	index   int // 1 to N
	m       *machine
	trace   trace
	who     persona                   // empty: it did not come so far
	answer  *agentv1.IdentityResponse // nil: its guest gave none
	release func()                    // of its admitted memory
	resumed time.Duration
	ready   time.Duration
	err     error
	info    Info
}

// Fork makes N children of a snapshot. Each succeeds or fails on its own; an
// error means that none was tried, or that ctx ended and all are gone again.
//
// All children are restored before the first runs, and then begin together at a
// gate: on a host with few CPUs the guests' own work would else delay the
// restores behind it, and a message to each VMM the start of the later ones.
func (e *Engine) Fork(ctx context.Context, req ForkRequest) (_ ForkResult, err error) {
	start := e.cfg.Now()
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return ForkResult{}, err
	}
	defer done()
	if req.N < 1 || req.N > MaxFork {
		return ForkResult{}, problem(ErrInvalid, "", "n is %d, want 1 to %d", req.N, MaxFork)
	}
	e.traffic.enter()
	defer e.traffic.leave()
	f := &forking{e: e, req: req, start: start, began: startgate.Now(), births: make([]birth, req.N)}
	if f.src, err = e.openForkSource(ctx, req.Tag); err != nil {
		return ForkResult{}, err
	}
	defer f.src.close()
	if f.gate, err = startgate.New(); err != nil {
		return ForkResult{}, err
	}
	defer f.gate.Close()
	f.req.kin.MayFork = f.req.kin.MayFork || req.GuestFork
	prefix, err := e.random(4)
	if err != nil {
		return ForkResult{}, err
	}
	f.idPrefix = hex.EncodeToString(prefix)
	poolReady := e.pools.count(f.src.key())
	e.pools.touch(req.Tag, f.src.shape())
	// A restore computes and waits for nothing: more at once than there are CPUs only get into each other's way.
	each(req.N, max(1, e.cfg.Concurrency/2), func(i int) { f.restore(ctx, &f.births[i], i+1) })
	restored := e.cfg.Now().Sub(start)
	if ctx.Err() == nil {
		if err := f.open(); err != nil {
			f.fail(err)
		}
	}
	each(req.N, e.cfg.Concurrency, func(i int) {
		f.resume(ctx, &f.births[i])
		f.identify(ctx, &f.births[i])
	})
	e.pools.wake()
	if ctx.Err() != nil {
		f.takeBack()
		err := ended(ctx, fmt.Errorf("fork %s: %w", req.Tag, context.Cause(ctx)))
		e.cfg.Observer.Observe(OpFork, e.cfg.Now().Sub(start), err)
		return ForkResult{}, err
	}
	e.cfg.Observer.Observe(OpFork, e.cfg.Now().Sub(start), nil)
	r := f.result(poolReady)
	f.leaveReceipts()
	e.cfg.Logger.Info("forked", "tag", req.Tag, "n", req.N, "shells", poolReady, "restored", restored, "resumed", r.ResumedWall, "ready", r.ReadyWall)
	return r, nil
}

// restore loads one child, whose vCPUs then wait at the gate.
func (f *forking) restore(ctx context.Context, b *birth, index int) {
	begin := f.e.cfg.Now()
	b.index, b.trace = index, f.e.newTrace(f.start)
	b.trace.mark("turn")
	if b.err = context.Cause(ctx); b.err != nil {
		return
	}
	if b.release, b.err = f.e.memory.admit(f.e.cfg.ChildMemory); b.err != nil {
		return
	}
	b.err = f.restoreInto(ctx, b)
	b.trace.mark("restore")
	failpoint.Here(failpoint.ForkRestored)
	f.e.cfg.Observer.Observe(OpRestore, f.e.cfg.Now().Sub(begin), b.err)
	if b.err != nil {
		b.err = fmt.Errorf("restore child %d: %w", index, b.err)
		b.release()
	}
}

// open lets all children begin: those that were restored for this fork by one gate,
// the prepared ones each by its own.
func (f *forking) open() error {
	if err := f.gate.Open(); err != nil {
		return err
	}
	for i := range f.births {
		if b := &f.births[i]; b.err == nil {
			if err := b.m.openGate(); err != nil {
				return err
			}
		}
	}
	return nil
}

// fail gives every child that was restored the same error.
func (f *forking) fail(err error) {
	for i := range f.births {
		if b := &f.births[i]; b.err == nil {
			b.err = err
			f.e.discard(b.m)
			b.release()
		}
	}
}

// resume waits until one child has begun. A fork that nobody waits for any more
// is ended by identify.
func (f *forking) resume(ctx context.Context, b *birth) {
	if b.err != nil || ctx.Err() != nil {
		return
	}
	at, err := f.enter(ctx, b)
	b.trace.mark("start")
	if err == nil {
		b.resumed = time.Duration(at - f.began)
		failpoint.Here(failpoint.ForkResumed)
		return
	}
	b.err = fmt.Errorf("resume child %d: %w", b.index, err)
	b.release()
}

// enter waits until a child's machine has begun. A prepared one that died may have
// done so on the shelf, unseen: that costs a try only.
func (f *forking) enter(ctx context.Context, b *birth) (int64, error) {
	for {
		at, err := f.begun(ctx, b.m)
		b.m.closeGate() // not while gates are opened: unmapping it interrupts the other CPUs
		if err == nil {
			return at, nil
		}
		died := !alive(b.m) || gone(err) && waitEnd(b.m, 50*time.Millisecond)
		if died {
			err = endError(b.m)
		}
		f.e.discard(b.m)
		if !died || !b.m.prepared || ctx.Err() != nil {
			return 0, err
		}
		if err := f.restoreInto(ctx, b); err != nil {
			return 0, err
		}
		if err := b.m.openGate(); err != nil {
			f.e.discard(b.m)
			return 0, err
		}
	}
}

func (f *forking) begun(ctx context.Context, m *machine) (at int64, err error) {
	limit := f.e.cfg.RestoreTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, problem(ErrTimeout, "", "its vCPUs did not run within %s", limit))
	defer cancel()
	r, err := m.proc.Resume(ctx)
	return r.RunningAt, err
}

// restoreInto uses a shell from the pool; one that died there costs a try only.
func (f *forking) restoreInto(ctx context.Context, b *birth) error {
	for {
		m := f.e.pools.take(f.src.key())
		pooled := m != nil
		if pooled {
			f.e.own(m, nil)
		} else {
			var err error
			if m, err = f.e.spawn(ctx, f.src.shape(), nil); err != nil {
				return err
			}
		}
		err := f.load(ctx, m)
		if err == nil {
			b.m, m.pooled = m, pooled
			return nil
		}
		died := errors.Is(err, vmmctl.ErrGone)
		if died && !pooled {
			err = endError(m)
		}
		f.e.discard(m)
		if !died || !pooled || ctx.Err() != nil {
			return err
		}
	}
}

func (f *forking) load(ctx context.Context, m *machine) error {
	limit := f.e.cfg.RestoreTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, problem(ErrTimeout, "", "no answer to its restore within %s", limit))
	defer cancel()
	if m.prepared {
		return f.begin(ctx, m)
	}
	genID, err := f.e.random(16)
	if err != nil {
		return err
	}
	c := f.src.config
	m.genID = [16]byte(genID)
	c.CID, c.GenID, c.Prepare = m.cid, m.genID, f.ahead
	if f.gate != nil {
		c.Gate = f.gate.File()
	}
	disks, closeOwn, err := f.e.openOwn(m, c.Disks, f.src.bases)
	if err != nil {
		return err
	}
	defer closeOwn()
	c.Disks = disks
	m.restored, err = m.proc.Restore(ctx, c)
	switch {
	case err == nil, errors.Is(err, vmmctl.ErrGone), ctx.Err() != nil:
		return err
	case strings.Contains(err.Error(), unix.ENOMEM.Error()): // the VMM's errors come as text
		return problem(ErrNoMemory, "kill sandboxes or ask for fewer", "%w", err)
	}
	// The VMM read the snapshot and said no: another CPU, another format.
	return problem(ErrNotRestorable, "make it again on this host with `forkd snapshot create`; `forkd snapshot verify` tells whether it is damaged",
		"snapshot %s: %w", f.req.Tag, err)
}

// begin has nothing to do for a prepared machine but to let it run, if nobody
// opens gates later.
func (f *forking) begin(ctx context.Context, m *machine) error {
	if !alive(m) {
		return vmmctl.ErrGone
	}
	if f.gate != nil {
		return nil
	}
	defer m.closeGate()
	if err := m.openGate(); err != nil {
		return err
	}
	_, err := m.proc.Resume(ctx)
	return err
}

// takeBack ends the children of a fork that nobody waits for any more.
func (f *forking) takeBack() {
	each(len(f.births), 4*f.e.cfg.Concurrency, func(i int) {
		b := &f.births[i]
		if b.err != nil || b.m == nil {
			return
		}
		f.e.mu.Lock()
		listed := f.e.boxes[b.info.ID]
		f.e.mu.Unlock()
		if listed != nil {
			f.e.killBox(listed)
		}
	})
}

func (f *forking) result(poolReady int) ForkResult {
	r := ForkResult{PoolReady: poolReady, Children: make([]Child, 0, len(f.births))}
	for i := range f.births {
		b := &f.births[i]
		r.Children = append(r.Children, Child{Index: b.index, Info: b.info, Err: b.err})
		if b.err != nil {
			f.e.cfg.Logger.Warn("fork: a child failed", "tag", f.req.Tag, "index", b.index, "err", b.err)
			continue
		}
		r.ResumedWall = max(r.ResumedWall, b.resumed)
		r.ReadyWall = max(r.ReadyWall, b.ready)
	}
	return r
}

// forkSource is an open snapshot, shared by the children of one fork.
type forkSource struct {
	files  *snapshot.Files
	config vmmctl.RestoreConfig
	bases  [][]layer.ID // of the disks that are written to
	hot    *os.File     // nil: nothing is known of what children touch
	free   func()       // of the files
	leave  func()       // whom it counts as a user of; may be nil
}

// openForkSource opens a snapshot and counts the fork as a user of it until close.
func (e *Engine) openForkSource(ctx context.Context, tag string) (*forkSource, error) {
	if err := e.awaitWritten(ctx, tag); err != nil {
		return nil, err
	}
	leave, err := e.use(tag)
	if err != nil {
		return nil, err
	}
	s, err := e.openSource(tag)
	if err != nil {
		leave()
		return nil, err
	}
	s.leave = leave
	return s, nil
}

// openSource opens a snapshot for somebody whom a deletion need not mind.
func (e *Engine) openSource(tag string) (*forkSource, error) {
	if s := e.pools.sources.take(tag); s != nil {
		return s, nil
	}
	files, err := e.store.Open(tag)
	if err != nil {
		return nil, storeError(err)
	}
	s := &forkSource{files: files, free: files.Close}
	s.config.Disks, s.bases = sourceDisks(s.files)
	s.config.Memory = memorySegments(s.files.Memory.Image)
	s.config.State = s.files.State()
	s.hot = s.files.File(snapshot.HotFile)
	return s, nil
}

func (s *forkSource) close() {
	s.free()
	if s.leave != nil {
		s.leave()
	}
}

// childID is the name of a fork's child.
func (f *forking) childID(index int) string { return fmt.Sprintf("sb-%s-%04d", f.idPrefix, index) }

// use counts a fork as a user of a tag, so that a deletion sees it.
func (e *Engine) use(tag string) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deleting[tag] {
		return nil, problem(ErrNotFound, "", "snapshot %s is being deleted", tag)
	}
	if s, failed := e.failed[tag]; failed {
		return nil, problem(ErrConflict, "branch again; `forkd snapshot rm "+tag+"` clears it from the list", "snapshot %s could not be written: %s", tag, s.Warning)
	}
	if _, writing := e.creating[tag]; writing {
		return nil, problem(ErrConflict, "try again when it is ready", "snapshot %s is being written", tag)
	}
	e.using[tag]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.using[tag]--; e.using[tag] == 0 {
			delete(e.using, tag)
		}
	}, nil
}

// awaitWritten waits for a branch that is being written under that tag.
func (e *Engine) awaitWritten(ctx context.Context, tag string) error {
	e.mu.Lock()
	written := e.writing[tag]
	e.mu.Unlock()
	if written == nil {
		return nil
	}
	select {
	case <-written:
		return nil
	case <-ctx.Done():
		return ended(ctx, context.Cause(ctx))
	}
}

// hash names the content; a draft has none yet.
func (s *forkSource) hash() string {
	if s.files == nil {
		return ""
	}
	return s.files.ContentHash
}

func (s *forkSource) shape() vmspec.Shape { return s.files.Manifest.Shape }

// key names the shells that the snapshot's children can be made in.
func (s *forkSource) key() poolKey {
	return poolKey{s.shape(), s.files.Manifest.Tag, s.files.ContentHash}
}
