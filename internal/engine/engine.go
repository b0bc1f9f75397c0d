package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/guest"
	"github.com/forkd/forkd/internal/engine/guestfork"
	"github.com/forkd/forkd/internal/engine/guesttoken"
	"github.com/forkd/forkd/internal/engine/home"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/life"
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/op"
	"github.com/forkd/forkd/internal/engine/policies"
	"github.com/forkd/forkd/internal/engine/pool"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/settings"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/undo"
)

// Config configures an Engine.
type Config = settings.Config

// Engine is the central object of the domain. It owns the snapshots, the sandboxes, the pools and
// all VM processes. Its methods are safe for concurrent use.
type Engine struct {
	*guest.Calls // requests to sandboxes
	*op.Ops      // operations
	op.Accounts
	*op.Pauses
	*op.Promotions
	*op.Travels
	*op.Labels
	*op.Belongings
	*op.Deletion
	*policies.Policies
	*guestfork.Trees
	*pool.Sizes
	admission.Meter // host memory, disk and pressure
	*life.Watch     // deadlines of sandboxes

	cfg    Config
	ops    *op.Config // configuration of the operations
	home   *home.Home // directories and stores, held until Close
	kvm    *os.File
	random func(n int) ([]byte, error) // returns fresh random bytes

	// root ends when Close stops waiting for requests; its cause is ErrClosing.
	root    context.Context
	abandon context.CancelCauseFunc
	// background ends when Close begins. Pools, hashing and expiry run under it.
	background     context.Context
	stopBackground context.CancelFunc
	workers        sync.WaitGroup // background work and calls by guests

	procs     *vmproc.Supervisor
	sandboxes *sandboxes.Table
	catalog   *catalog.Catalog
	launcher  *launch.Launcher
	wires     *network.Wires
	pools     *pool.Pools
	families  *guestfork.Families
	tokens    *guesttoken.Server
	branches  chan struct{} // holds a value for each running Branch
	traffic   sched.Traffic

	// mu guards the fields below. No other lock is taken under it.
	mu       sync.Mutex
	closing  bool
	inflight sync.WaitGroup // Add only under mu while !closing
	closed   chan struct{}
}

// Open starts the engine. It adopts the VMs still running in RunDir, removes leftovers without an
// owner, and starts filling the pools. Only one engine can be open on a directory.
func Open(ctx context.Context, c Config) (_ *Engine, err error) {
	e, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	return e, nil
}

func open(ctx context.Context, c Config) (_ *Engine, err error) {
	if err := c.Complete(); err != nil {
		return nil, err
	}
	var u undo.Stack
	defer u.OnError(&err)
	e := &Engine{cfg: c, random: c.Random(), branches: make(chan struct{}, c.Branches), closed: make(chan struct{})}
	e.root, e.abandon = context.WithCancelCause(context.Background())
	u.Push(func() { e.abandon(sandbox.ErrClosing) })
	e.background, e.stopBackground = context.WithCancel(e.root)
	if e.home, err = home.Open(c.StoreDir, c.RunDir, home.Options{Reserve: c.DiskReserve, Program: c.Program,
		Now: c.Now, Log: c.Logger}); err != nil {
		return nil, err
	}
	u.Push(e.home.Close)
	if e.kvm, err = c.OpenKVM(); err != nil {
		return nil, err
	}
	u.Push(func() { e.kvm.Close() })
	if err := e.makeRooms(); err != nil {
		return nil, err
	}
	sched.RaiseFileLimit()
	sched.RaisePriority()
	if err := e.adopt(ctx); err != nil {
		return nil, err
	}
	e.RecoverReceipts()
	e.pools.Load()
	e.startWorkers()
	return e, nil
}

// adopt takes over the state left by the previous engine.
func (e *Engine) adopt(ctx context.Context) error {
	if err := e.sandboxes.Adopt(ctx); err != nil {
		return err
	}
	if err := e.catalog.SettlePins(e.sandboxes.NotePin); err != nil {
		return err
	}
	if err := e.families.Adopt(); err != nil {
		return home.Refusal(err)
	}
	e.AdoptBelongings()
	e.FinishPromotions()
	return errors.Join(e.SettleRenames(), e.Policies.Adopt(), e.sandboxes.Sweep())
}

func (e *Engine) startWorkers() {
	for _, work := range []func(context.Context){e.wires.Run, e.pools.Run, e.catalog.Run, e.sandboxes.Expire,
		e.sandboxes.Ran.Note, e.Notices.Adopt, e.families.Run, e.WriteReceipts, e.Arrivals.Run, e.ResumePromoting,
		e.Watch.Watch, e.Drain.Run} {
		e.workers.Go(func() { work(e.background) })
	}
}
