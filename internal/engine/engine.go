package engine

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/agentproto/forkwire"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/guest"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/op"
	"github.com/forkd/forkd/internal/engine/pool"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/layer"
	"github.com/forkd/forkd/internal/layer/store"
	"github.com/forkd/forkd/internal/receipt"
	"github.com/forkd/forkd/internal/rundir"
	"github.com/forkd/forkd/internal/sandbox"
	"github.com/forkd/forkd/internal/snapshot"
	"github.com/forkd/forkd/internal/undo"
)

// Engine is the domain's one object: it owns the snapshots, the sandboxes, the
// pools and all VM processes. Its methods are safe for concurrent use.
type Engine struct {
	*guest.Calls // requests to sandboxes
	*op.Ops      // operations

	ops      *op.Config // how operations are carried out
	cfg      Config
	store    *snapshot.Store
	layers   *store.Store // of the snapshots' memory and disks
	catalog  *catalog.Catalog
	receipts *receipt.Store
	locks    []*os.File  // on StoreDir and RunDir, held until Close
	run, vms *rundir.Dir // RunDir, and the VMs' directory in it
	kvm      *os.File

	// root ends when Close runs out of patience; its cause is ErrClosing.
	root    context.Context
	abandon context.CancelCauseFunc
	// background ends when Close begins: pools, digests, expiry.
	background     context.Context
	stopBackground context.CancelFunc
	workers        sync.WaitGroup

	procs     *vmproc.Supervisor
	sandboxes *sandboxes.Table
	launcher  *launch.Launcher
	pools     *pool.Pools
	branches  chan struct{} // a value for each Branch under way
	traffic   sched.Traffic
	memory    *launch.Memory
	guests    guests

	randMu sync.Mutex // the injected reader need not be safe for concurrent use

	// mu guards what follows. It is never held across I/O or a call to a VM.
	mu       sync.Mutex
	closing  bool
	inflight sync.WaitGroup // Add only under mu while !closing
	closed   chan struct{}
}

// Open starts the engine: it takes over the VMs that still run in RunDir,
// clears away what belongs to nobody, and begins to fill the pools. Only one
// engine can be open on a directory.
func Open(ctx context.Context, c Config) (_ *Engine, err error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	var u undo.Stack
	defer u.OnError(&err)
	e := &Engine{
		cfg: c, closed: make(chan struct{}),
	}
	e.branches = make(chan struct{}, c.Branches)
	e.guests = newGuests(c.Branches)
	e.memory = &launch.Memory{Available: c.MemAvailable, Reserve: c.HostReserve, Now: c.Now}
	e.root, e.abandon = context.WithCancelCause(context.Background())
	u.Push(func() { e.abandon(sandbox.ErrClosing) })
	e.background, e.stopBackground = context.WithCancel(e.root)
	if err := e.openDirs(); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	u.Push(e.closeDirs)
	if e.layers, err = store.Open(filepath.Join(c.StoreDir, "layers"), store.Options{Reserve: c.DiskReserve}); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	if e.store, err = snapshot.OpenStore(filepath.Join(c.StoreDir, "snapshots"), e.layers); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	if e.receipts, err = receipt.Open(filepath.Join(c.StoreDir, "receipts"), receipt.Limits{}); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	if e.kvm, err = c.OpenKVM(); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	u.Push(func() { e.kvm.Close() })
	e.procs, err = vmproc.New(vmproc.Config{
		Binary: c.VMMBinary, KVM: e.kvm, RunDir: c.RunDir, VMs: e.vms, Overlays: filepath.Join(c.StoreDir, "own"), DiskReserve: c.DiskReserve,
		Dialer: e.newGuestDialer, Random: e.random, Log: c.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	e.sandboxes = sandboxes.New(sandboxes.Config{
		Procs: e.procs, Events: sandboxes.Events{Adding: e.addChild, Dropped: e.dropChild, Ended: e.sandboxEnded},
		Pin:        func(id string, layers []layer.ID) error { return e.catalog.Pin(id, layers) },
		Unpin:      func(id string) { e.catalog.Unpin(id) },
		FailedKeep: c.FailedKeep, AtOnce: c.Concurrency, Now: c.Now, Log: c.Logger,
	})
	if e.catalog, err = e.openCatalog(); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	e.launcher = launch.New(launch.Config{
		Procs: e.procs, RestoreTimeout: c.RestoreTimeout, IdentityTimeout: c.IdentityTimeout, Random: e.random, Log: c.Logger,
	})
	e.pools = pool.New(pool.Config{
		Launcher: e.launcher, Memory: e.memory, ShellMemory: c.ChildMemory, Fallback: c.PoolSize, Open: func(tag string) (*launch.Source, error) { return e.OpenSource(tag) },
		AwaitForks: e.traffic.Wait, File: filepath.Join(c.StoreDir, "pools.json"), AtOnce: 4 * c.Concurrency, Log: c.Logger,
	})
	e.Calls = guest.New(guest.Config{
		Sandboxes: e.sandboxes, Begin: e.begin, Closing: e.background, Layers: filepath.Join(c.StoreDir, "layers"),
		Observer: c.Observer, Now: c.Now,
	})
	e.ops = &op.Config{
		RunDir: c.RunDir, Images: c.Images, Concurrency: c.Concurrency, BootWait: c.BootWait, RestoreTimeout: c.RestoreTimeout,
		IdentityTimeout: c.IdentityTimeout, BranchTimeout: c.BranchTimeout, ChildMemory: c.ChildMemory,
		NoWorkingSet: c.NoWorkingSet, Oracle: c.Oracle, Observer: c.Observer, Logger: c.Logger, Now: c.Now,
	}
	e.Ops = op.New(e.ops, op.Rooms{
		Store: e.store, Layers: e.layers, Receipts: e.receipts, Catalog: e.catalog, Sandboxes: e.sandboxes, Procs: e.procs,
		Launcher: e.launcher, Pools: e.pools, Memory: e.memory, Traffic: &e.traffic, Branches: e.branches,
		Root: e.root, Begin: e.begin, Random: e.random,
	})
	sched.RaiseFileLimit()
	sched.RaisePriority()
	if err := e.adopt(ctx); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	e.RecoverReceipts()
	e.pools.Load(e.poolOf)
	e.startWorkers()
	return e, nil
}

// adopt takes over what the last engine left.
func (e *Engine) adopt(ctx context.Context) error {
	if err := e.sandboxes.Adopt(ctx); err != nil {
		return err
	}
	if err := e.catalog.SettlePins(e.sandboxes.NotePin); err != nil {
		return err
	}
	if err := e.adoptFamilies(); err != nil {
		return err
	}
	return e.sandboxes.SweepOverlays()
}

// sandboxEnded is called when a sandbox's VM has ended; killed: and nothing of it is left.
func (e *Engine) sandboxEnded(i sandbox.Info, killed bool) {
	_, hash := i.Base()
	e.catalog.Left(hash)
	if !killed {
		e.childExited(i, forkwire.Died, i.Reason)
		return
	}
	e.forgetFamily(i.ID)
	e.childExited(i, forkwire.Killed, "")
}

func (e *Engine) openCatalog() (*catalog.Catalog, error) {
	return catalog.Open(catalog.Config{
		Snapshots: e.store, Layers: e.layers, Sandboxes: e.sandboxes, Deleted: func(tag string) { e.pools.Forget(tag) },
		AwaitForks: e.traffic.Wait, AwaitBranches: e.awaitBranches,
		Now: e.cfg.Now, Logger: e.cfg.Logger, ScrubInterval: e.cfg.ScrubInterval,
	})
}

// awaitBranches returns when no branch is under way, or when ctx ends.
func (e *Engine) awaitBranches(ctx context.Context) error {
	for len(e.branches) > 0 && ctx.Err() == nil {
		sched.Sleep(ctx, 20*time.Millisecond)
	}
	return ctx.Err()
}

func (e *Engine) startWorkers() {
	e.workers.Go(func() { e.pools.Run(e.background) })
	e.workers.Go(func() { e.catalog.Run(e.background) })
	e.workers.Go(func() { e.sandboxes.Expire(e.background) })
	e.workers.Go(func() { e.sweepTransient(e.background) })
	e.workers.Go(func() { e.WriteReceipts(e.background) })
}

// begin admits a request. The context it returns ends with the caller's, or
// with the engine; done must be called.
func (e *Engine) begin(ctx context.Context) (_ context.Context, done func(), _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, nil, sandbox.ErrClosing
	}
	e.inflight.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.root, func() { cancel(context.Cause(e.root)) })
	return ctx, func() {
		stop()
		cancel(nil)
		e.inflight.Done()
	}, nil
}

// Close stops the engine: new requests get ErrClosing, those under way may
// finish until ctx ends and are cancelled then, shells are ended. Running VMs
// are left for the next engine, or ended if Config.KillOnClose. A second Close
// waits for the first.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		<-e.closed
		return nil
	}
	e.closing = true
	e.mu.Unlock()
	defer close(e.closed)
	err := e.finishRequests(ctx)
	e.stopBackground()
	e.workers.Wait()
	e.FlushReceipts()
	e.pools.Close()
	e.sandboxes.Release(e.cfg.KillOnClose)
	e.procs.Release()
	e.abandon(sandbox.ErrClosing)
	e.kvm.Close()
	e.closeDirs()
	return err
}

// finishRequests waits for requests under way; when ctx ends it cancels them
// and waits for their clean-up.
func (e *Engine) finishRequests(ctx context.Context) error {
	idle := make(chan struct{})
	go func() {
		e.inflight.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		e.abandon(sandbox.ErrClosing)
		<-idle
		return fmt.Errorf("close engine: requests were cut off: %w", context.Cause(ctx))
	}
}

// random returns n fresh random bytes.
func (e *Engine) random(n int) ([]byte, error) {
	b := make([]byte, n)
	e.randMu.Lock()
	defer e.randMu.Unlock()
	if _, err := io.ReadFull(e.cfg.Rand, b); err != nil {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}
	return b, nil
}
