package launch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/network"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Config configures a Launcher.
type Config struct {
	Procs           *vmproc.Supervisor // spawns VMM processes
	Wires           *network.Wires     // lends the ends of wires to VMs
	RestoreTimeout  time.Duration      // for one VM
	IdentityTimeout time.Duration      // for one VM
	// Random returns bytes of cryptographic quality, used as the guests' entropy.
	Random func(n int) ([]byte, error)
	Log    *slog.Logger // receives details of identities and populated pages
}

// Launcher makes VMs from snapshots. Its methods are safe for concurrent use.
type Launcher struct{ cfg Config }

// New returns a Launcher.
func New(c Config) *Launcher { return &Launcher{c} }

// Spawn starts a process for an owner's VM of that shape. With prewarm, the process first performs
// a restore for itself (package vmm), for callers with time to spare.
func (l *Launcher) Spawn(ctx context.Context, shape vmspec.Shape, owner string, prewarm bool) (*VM, error) {
	return l.spawn(ctx, shape, vmproc.SpawnOptions{Prewarm: prewarm, Bounds: vmproc.Bounds{Owner: owner}})
}

func (l *Launcher) spawn(ctx context.Context, shape vmspec.Shape, o vmproc.SpawnOptions) (*VM, error) {
	m, err := l.cfg.Procs.Spawn(ctx, shape, o)
	if err != nil {
		return nil, err
	}
	return &VM{VM: m}, nil
}

// Launch restores a snapshot into a VM from take, or into a new one, and runs it for an owner. If a
// VM from take has died in the pool, Launch tries another one.
func (l *Launcher) Launch(ctx context.Context, src *Source, owner string, take func() *VM) (*VM, error) {
	m, err := l.launch(ctx, src, take, vmproc.Bounds{Owner: owner}, l.Restore)
	if err != nil {
		return nil, err
	}
	if err := m.Settle(); err != nil {
		m.Discard()
		return nil, err
	}
	return m, nil
}

// LaunchArmed is like Launch, but the VM does not start: it waits at its gate until Enter. The VM
// gets the wire, which may be nil, by the time Identify has opened its network. The caller attaches
// the wire to the VM once the VM is unique. The VM's limits apply before it has any part of the
// snapshot, or at least before it starts. It is in its owner's group when Identify returns.
func (l *Launcher) LaunchArmed(ctx context.Context, src *Source, take func() *VM, wire *network.Wire,
	bounds vmproc.Bounds) (*VM, error) {
	return l.launch(ctx, src, take, bounds, func(ctx context.Context, src *Source, m *VM) error {
		return l.arm(ctx, src, m, wire)
	})
}

type restoreFunc func(ctx context.Context, src *Source, m *VM) error

func (l *Launcher) launch(ctx context.Context, src *Source, take func() *VM, bounds vmproc.Bounds,
	restore restoreFunc) (*VM, error) {
	for {
		m, pooled, err := l.takeOrSpawn(ctx, src, take, bounds)
		if err != nil {
			return nil, err
		}
		err = restore(ctx, src, m)
		if err == nil {
			m.Pooled = pooled
			return m, nil
		}
		died := errors.Is(err, vmm.ErrGone)
		if died && !pooled {
			err = m.EndError()
		}
		m.Discard()
		if !died || !pooled || ctx.Err() != nil {
			return nil, err
		}
	}
}

// takeOrSpawn returns a VM within its bounds.
func (l *Launcher) takeOrSpawn(ctx context.Context, src *Source, take func() *VM,
	bounds vmproc.Bounds) (m *VM, pooled bool, err error) {
	if !bounds.Apart() {
		m = take()
	}
	if m == nil {
		m, err = l.spawn(ctx, src.Shape(), vmproc.SpawnOptions{Bounds: bounds})
		return m, false, err
	}
	if err := m.Limit(bounds); err != nil && m.Alive() { // if it is dead, the restore returns the error
		m.Discard()
		return nil, true, err
	}
	return m, true, nil
}

// Booted takes over a VM after its guest has booted and reported that it is ready. Identify makes
// the guest unique and then lends it its wire, which may be nil.
func (l *Launcher) Booted(ctx context.Context, m *vmproc.VM, genID [16]byte, wire *network.Wire) (*VM, error) {
	b := &VM{VM: m, GenID: genID, Lent: network.Lent{Confined: m.Confined()}, wire: wire}
	return b, l.awaitTrust(ctx, wire)
}

// awaitTrust waits for the wire if the guest must trust forkd-net: the guest gets the certificate
// with its identity.
func (l *Launcher) awaitTrust(ctx context.Context, wire *network.Wire) error {
	if !l.cfg.Wires.SetsHeaders(wire) {
		return nil
	}
	return wire.Await(ctx)
}

// Restore restores a snapshot into a VM and runs it. A prepared VM is already restored, so Restore
// only starts it.
func (l *Launcher) Restore(ctx context.Context, src *Source, m *VM) error {
	ctx, cancel := l.bound(ctx, src)
	defer cancel()
	if !m.Prepared {
		return l.restore(ctx, src, m, false)
	}
	if !m.Alive() {
		return vmm.ErrGone
	}
	_, err := l.Enter(ctx, src, m)
	return err
}

// arm restores a snapshot into a VM, which then waits at its gate.
func (l *Launcher) arm(ctx context.Context, src *Source, m *VM, wire *network.Wire) (err error) {
	if m.Prepared && !m.Alive() {
		return vmm.ErrGone
	}
	m.wire, m.Lent = wire, network.Lent{Confined: m.Confined()}
	if m.Prepared {
		return nil // it is lent its wire when its network is opened
	}
	if m.Lent, err = l.cfg.Wires.Lend(ctx, wire, m.Lent); err != nil { // the end available by now
		return err
	}
	defer m.Lent.Close()
	ctx, cancel := l.bound(ctx, src)
	defer cancel()
	if m.gate, err = startgate.New(); err != nil {
		return err
	}
	return l.restore(ctx, src, m, false)
}

// Prepare restores a snapshot into a VM as far as possible before the child is known.
func (l *Launcher) Prepare(ctx context.Context, src *Source, m *VM) (err error) {
	if m.gate, err = startgate.New(); err != nil {
		return err
	}
	ctx, cancel := l.bound(ctx, src)
	defer cancel()
	if err := l.restore(ctx, src, m, true); err != nil {
		return err
	}
	m.Prepared = true
	l.populateShell(ctx, src, m)
	return nil
}

// lateFactor extends the timeouts of a snapshot that has not arrived whole. Each of its reads may wait for a slow link.
// An outage has a limit of its own (package partial).
const lateFactor = 10

// extend returns a timeout for a VM of the source.
func (s *Source) extend(limit time.Duration) time.Duration {
	if s.late {
		return lateFactor * limit
	}
	return limit
}

func (l *Launcher) bound(ctx context.Context, src *Source) (context.Context, context.CancelFunc) {
	limit := src.extend(l.cfg.RestoreTimeout)
	late := sandbox.Errorf(sandbox.ErrTimeout, "", "restore timed out after %s", limit)
	return context.WithTimeoutCause(ctx, limit, late)
}

// restore restores a snapshot into a VM. If the VM has a gate, it then waits there.
func (l *Launcher) restore(ctx context.Context, src *Source, m *VM, prepare bool) error {
	genID, err := l.cfg.Random(16)
	if err != nil {
		return err
	}
	c := src.Restore
	m.GenID = [16]byte(genID)
	c.CID, c.GenID, c.Prepare = m.CID, m.GenID, prepare
	if m.gate != nil {
		c.Gate = m.gate.File()
	}
	c.Net = m.Lent.File
	m.Tops = src.Tops
	disks, closeOverlays, err := m.OpenOverlays(c.Disks, src.Backing)
	if err != nil {
		return err
	}
	defer closeOverlays()
	c.Disks = disks
	m.Restored, err = m.Proc.Restore(ctx, c)
	return restoreError(ctx, src.Tag, err)
}

// restoreError converts a VMM's error from a restore.
func restoreError(ctx context.Context, tag string, err error) error {
	switch {
	case err == nil, errors.Is(err, vmm.ErrGone), ctx.Err() != nil:
		return err
	case errors.Is(err, unix.ENOMEM):
		return sandbox.Errorf(sandbox.ErrNoMemory, "", "%w", err)
	}
	// The VMM refused the snapshot: another CPU, another format.
	return sandbox.Errorf(storeerr.ErrNotRestorable, sandbox.ReasonRestoreRefused,
		"snapshot %s: %w", tag, err)
}

// Enter opens an armed VM's gate and waits until its vCPUs run. at is a time of startgate.Now.
func (l *Launcher) Enter(ctx context.Context, src *Source, m *VM) (at int64, err error) {
	defer m.closeGate()
	if err := l.awaitTrust(ctx, m.wire); err != nil { // its identity follows immediately
		return 0, err
	}
	if err := m.gate.Open(); err != nil {
		return 0, err
	}
	limit := src.extend(l.cfg.RestoreTimeout)
	late := sandbox.Errorf(sandbox.ErrTimeout, "", "vCPU start timed out after %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	r, err := m.Proc.Resume(ctx)
	return r.RunningAt, err
}
