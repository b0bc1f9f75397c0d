package vmproc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// spawnTimeout bounds the start of a VMM process.
const spawnTimeout = 30 * time.Second

// SpawnOptions configures a VM in addition to its shape.
type SpawnOptions struct {
	Prewarm bool              // see client.SpawnConfig
	Dial    client.HostDialer // if nil, Config.Dialer's
	Bounds  Bounds            // limits that the VM's cgroup and disks enforce
	// Ready, if set, is dialled instead of Dial for the guest's boot signal.
	Ready client.HostDialer
}

// Spawn starts a process with a VM of that shape, still without a guest. Its journal is written
// when Spawn returns, so that the next daemon can end it. Before that, the process ends with this
// daemon.
func (s *Supervisor) Spawn(ctx context.Context, shape vmspec.Shape, o SpawnOptions) (_ *VM, err error) {
	var u undo.Stack
	defer u.OnError(&err)
	dir, err := s.newDir()
	if err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	u.Push(func() { s.removeDir(dir) })
	group, err := s.bound(shape, o.Bounds)
	if err != nil {
		return nil, err
	}
	u.Push(func() { group.ended() })
	proc, err := s.start(ctx, dir, group, shape, o)
	if err != nil {
		return nil, err
	}
	m := &VM{sup: s, Proc: proc, Dir: dir, Shape: shape, CID: s.nextCID.Add(1) - 1, Disks: &Disks{},
		diskLimit: int64(o.Bounds.Limits.DiskMiB) << 20}
	m.group.Store(group)
	u.Push(m.End)
	if err := m.writeJournal(); err != nil {
		return nil, err
	}
	m.watch()
	return m, nil
}

// start starts the process itself.
func (s *Supervisor) start(ctx context.Context, dir string, in *group, shape vmspec.Shape,
	o SpawnOptions) (*client.Process, error) {
	c := client.SpawnConfig{
		Shape: shape, Dial: o.Dial, Prewarm: o.Prewarm, Seccomp: s.cfg.Seccomp, Starter: s.cfg.Starter,
	}
	started := func(*client.Process) {}
	if c.Dial == nil {
		c.Dial, started = s.cfg.Dialer()
	}
	if next := c.Dial; o.Ready != nil {
		c.Dial = func(port uint32) (*os.File, error) {
			if port == agentproto.ReadyPort {
				return o.Ready(port)
			}
			return next(port)
		}
	}
	stderr, err := os.OpenFile(filepath.Join(dir, vmmLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	defer stderr.Close()
	if c.Cgroup, err = in.open(); err != nil {
		return nil, fmt.Errorf("limit VM: %w", err)
	}
	defer c.Cgroup.Close()
	late := sandbox.Errorf(sandbox.ErrTimeout, "", "the VMM process start timed out after %s", spawnTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, spawnTimeout, late)
	defer cancel()
	c.Binary, c.Dir, c.KVM, c.Log = s.cfg.Binary, dir, s.cfg.KVM, stderr
	proc, err := client.Spawn(ctx, c)
	if err != nil {
		if tail := TailLines(filepath.Join(dir, vmmLog), 5); tail != "" {
			err = fmt.Errorf("%w; it said: %s", err, guesttext.Tail(tail))
		}
		return nil, err
	}
	if c := client.ConfinementOf(proc); s.cfg.Seccomp == seccomp.On && !c.Confined {
		s.open.Do(func() { s.cfg.Log.Warn("VMM processes are not confined to their system calls", "why", c.Why) })
	}
	started(proc)
	return proc, nil
}

func (s *Supervisor) newDir() (string, error) {
	for {
		dir := filepath.Join(s.dir(), fmt.Sprintf("v%08d", s.nextVM.Add(1)))
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}
