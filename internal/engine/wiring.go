package engine

import (
	"context"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/guest"
	"github.com/forkd/forkd/internal/engine/guestfork"
	"github.com/forkd/forkd/internal/engine/guesttoken"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/life"
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/op"
	"github.com/forkd/forkd/internal/engine/policies"
	"github.com/forkd/forkd/internal/engine/pool"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// makeRooms creates the rooms, from the lowest floor up. A room that calls one created later does
// so through a function, which looks that room up at the time of the call.
func (e *Engine) makeRooms() error {
	if err := e.makeSandboxes(); err != nil {
		return err
	}
	if err := e.makeCatalog(); err != nil {
		return err
	}
	e.makePools()
	e.Calls = guest.New(guest.Config{
		Sandboxes: e.sandboxes, Begin: e.begin, Closing: e.background, Layers: e.home.LayersDir(),
		Observer: e.cfg.Observer, Now: e.cfg.Now, Tell: e.cfg.Events, Log: e.cfg.Logger, Traffic: &e.traffic,
		Populate: e.launcher.PopulateFor, SnapshotDir: e.home.Snapshots.Dir,
		Wake: func(ctx context.Context, id string) (bool, error) { return e.Rouse(ctx, id) }})
	e.Policies = policies.New(policies.Config{Sandboxes: e.sandboxes, Wires: e.wires, Begin: e.begin,
		Tell: e.cfg.Events, Closing: e.background})
	e.makeOps()
	e.families = guestfork.New(guestfork.Config{
		Limits: e.cfg.GuestFork, Quota: e.cfg.GuestQuota, Acts: e.cfg.Acts, Branches: e.cfg.Branches,
		RunDir: e.cfg.RunDir, Run: e.home.Run, Sandboxes: e.sandboxes, Snapshots: e.catalog, Operations: e.Ops,
		Notice: e.Notices.Note, LayerBytes: e.home.Snapshots.Layers().Bytes, Begin: e.begin, BeginCall: e.beginCall,
		Closing: e.background, Log: e.cfg.Logger})
	e.tokens, e.ops.Keep = guesttoken.New(guesttoken.Config{Issuer: e.cfg.Identity,
		Sandboxes: e.sandboxes, BeginCall: e.beginCall, Closing: e.background, Log: e.cfg.Logger}), e.families.Keep
	e.Trees, e.ops.Deleted = e.families.Trees(), e.families.SweepLater
	e.Watch = life.New(life.Config{Sandboxes: e.sandboxes, Operations: e.Pauses, Begin: e.begin, Rollback: e.Rollback,
		Tell: e.cfg.Events, InUse: func(id string) bool { return e.families.Calls(id) > 0 }, Acts: e.cfg.Acts,
		PauseUnused: e.cfg.PauseUnused, Pressure: e.MemoryPressure, Now: e.cfg.Now, Log: e.cfg.Logger})
	return nil
}

// makeSandboxes creates the supervisor of VM processes and the table of sandboxes over it.
func (e *Engine) makeSandboxes() (err error) {
	e.procs, err = vmproc.New(vmproc.Config{
		Binary: e.cfg.VMMBinary, Starter: e.cfg.Starter, Seccomp: e.cfg.VMMSeccomp, Groups: e.cfg.Groups, KVM: e.kvm,
		RunDir: e.cfg.RunDir, VMs: e.home.VMs, Overlays: e.home.OverlaysDir(), DiskReserve: e.cfg.DiskReserve,
		Random: e.random, Log: e.cfg.Logger,
		Dialer: func() (client.HostDialer, func(*client.Process)) { return e.tokens.Over(e.families.Dialer()) },
	})
	if err != nil {
		return err
	}
	e.sandboxes = sandboxes.New(sandboxes.Config{
		Procs: e.procs,
		Events: sandboxes.Events{
			Adding:  func(i sandbox.Info) { e.families.Adding(i) },
			Dropped: func(i sandbox.Info) { e.families.Dropped(i) },
			Ended:   e.sandboxEnded, Ending: func(s *sandboxes.Sandbox, m *vmproc.VM) { e.FlushVolumes(s, m) },
		},
		Agent: launch.AgentAt(e.cfg.AgentBinary).Judge,
		Pin:   func(id string, layers []layer.ID) error { return e.catalog.Pin(id, layers) },
		Unpin: func(id string) { e.catalog.Unpin(id) }, Log: e.cfg.Logger,
		Paused: sandboxes.PausedDir(e.home.PausedDir()), Elapsed: e.cfg.Elapsed, FailedKeep: e.cfg.FailedKeep,
		Ran: e.home.RanFile(), Boot: e.cfg.BootID, AtOnce: e.cfg.Concurrency, Tell: e.cfg.Events, Now: e.cfg.Now,
	})
	return nil
}

// sandboxEnded is called when a sandbox's VM has ended. If killed is set, the sandbox has been
// removed completely.
func (e *Engine) sandboxEnded(i sandbox.Info, killed bool) {
	_, hash := i.Base()
	e.catalog.Left(hash)
	e.families.Ended(i, killed)
	e.Drop(i)
}

func (e *Engine) makeCatalog() (err error) {
	e.catalog, err = catalog.Open(catalog.Config{
		Snapshots: e.home.Snapshots, Layers: e.home.Layers, Sandboxes: e.sandboxes, Published: e.cfg.Published,
		Deleted: func(tag string) { e.pools.Forget(tag) }, Renamed: func(hash, tag, to string) { e.Renamed(hash, tag, to) },
		AwaitForks: e.traffic.Wait, AwaitBranches: func(ctx context.Context) error { return e.AwaitBranches(ctx) },
		Tell: e.cfg.Events, Acts: e.cfg.Acts, Now: e.cfg.Now, Logger: e.cfg.Logger,
		Agent: launch.AgentAt(e.cfg.AgentBinary).Describe, ScrubInterval: e.cfg.ScrubInterval})
	return err
}

func (e *Engine) makePools() {
	e.Meter = admission.Meter{Admission: admission.New(&e.cfg, e.sandboxes.Promised)}
	c := e.cfg
	e.wires = network.New(network.Config{Connect: c.NetConnect, Ceiling: c.NetCeiling, Taps: c.NetTaps, Log: c.Logger,
		Random: e.random, Trust: e.sandboxes.Trust, Secrets: c.Secrets, Confined: c.ExpectConfined()})
	e.launcher = launch.New(launch.Config{Procs: e.procs, Wires: e.wires, RestoreTimeout: c.RestoreTimeout,
		IdentityTimeout: c.IdentityTimeout, Random: e.random, Log: c.Logger})
	e.pools = pool.New(pool.Config{
		Launcher: e.launcher, Admission: e.Admission, ShellMemory: e.cfg.ChildMemory, Fallback: e.cfg.PoolSize,
		Find: e.home.Snapshots.Get, Open: func(tag string) (*launch.Source, error) { return e.OpenSource(tag) },
		AwaitForks: e.traffic.Wait, File: e.home.PoolsFile(), AtOnce: 4 * c.Concurrency, Tell: c.Events, Log: c.Logger,
		Stopped: func() bool { return e.Drain.On() }})
	e.Sizes = e.pools.Sizes(e.begin)
}

func (e *Engine) makeOps() {
	c := e.cfg
	e.ops = &op.Config{
		RunDir: c.RunDir, Images: c.Images, Concurrency: c.Concurrency, BootWait: c.BootWait,
		RestoreTimeout: c.RestoreTimeout, IdentityTimeout: c.IdentityTimeout, BranchTimeout: c.BranchTimeout,
		ChildMemory: c.ChildMemory, NoWorkingSet: c.NoWorkingSet, NodeKey: c.NodeKey, Oracle: c.Oracle, Acts: c.Acts,
		Observer: c.Observer, Tell: c.Events, Logger: c.Logger, Now: c.Now, Trust: c.SnapshotTrust, Secrets: c.Secrets,
		Identity: c.Identity != nil, Fetcher: c.Fetcher, FetchFrom: c.FetchFrom, AgentFile: launch.AgentAt(c.AgentBinary)}
	e.Ops = op.New(e.ops, op.Rooms{
		Store: e.home.Snapshots, Layers: e.home.Layers, Receipts: e.home.Receipts, Volumes: e.home.Volumes,
		Catalog: e.catalog, Sandboxes: e.sandboxes, Procs: e.procs, Launcher: e.launcher, Wires: e.wires,
		Pools: e.pools, Admission: e.Admission, Traffic: &e.traffic, Branches: e.branches, Root: e.root,
		Begin: e.begin, Random: e.random, DrainFile: e.home.DrainFile(), Networks: e.home.Networks})
	e.Pauses, e.Travels, e.Labels = op.NewPauses(e.Ops), op.NewTravels(e.Ops), op.NewLabels(e.Ops)
	e.Promotions, e.Belongings = op.NewPromotions(e.Ops, e.Pauses), op.NewBelongings(e.Ops)
	e.Deletion, e.Accounts = op.NewDeletion(e.Ops), e.Ops.Accounts
}
