package vmproc

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// Bounds holds the resource limits of a VM.
type Bounds struct {
	// Limits holds the requested limits. If it has no memory limit, the VM's group gets a default.
	Limits sandbox.Limits
	Tree   string // root of its tree, for the tree's budget
	Owner  string // tenant of the group it runs in, for its weight; empty for the operator
}

// BoundsOf returns the bounds of a sandbox.
func BoundsOf(i sandbox.Info) Bounds {
	return Bounds{Limits: i.Limits, Tree: i.Kin.RootOf(i.ID), Owner: i.Owner}
}

// Apart reports whether these bounds need a new process. Moving a running process to a tree's group
// takes too long for a fork (package cgroup), and a prepared shell already has its disks, without a
// limit.
func (b Bounds) Apart() bool { return b.inTree() || b.Limits.DiskMiB != 0 }

func (b Bounds) inTree() bool { return b.Limits.Tree.OfGroup() != sandbox.TreeBudget{} }

// ofGroup returns the limits enforced by a cgroup. The VMM and forks enforce the limits of disk
// space, forkd-net those of the network.
func ofGroup(l sandbox.Limits) sandbox.Limits {
	l.DiskMiB, l.NetMiB, l.Tree = 0, 0, l.Tree.OfGroup()
	return l
}

// Defaults for a VM without requested limits, so that a misbehaving VMM does not take the host
// down.
const (
	// vmmMemory is the memory of a VMM besides guest memory and its share of page tables.
	vmmMemory = 128 << 20
	// tables is the number of bytes of guest memory per byte of page tables. KVM's and the host's
	// tables take 1/256 together, and nested ones as much again.
	tables = 64
	// vmmThreads is the number of threads besides vCPUs. The Go runtime makes a thread for each
	// blocking system call, and ends the process if it cannot. The value is far above a VMM's
	// normal use, and far below a host's limit.
	vmmThreads = 64
)

// groupLimits returns the limits of a VM's group: the requested ones, and defaults for the rest, as
// far as the host has controllers.
func groupLimits(shape vmspec.Shape, l sandbox.Limits, have []cgroup.Controller, disk string) cgroup.Limits {
	guest := shape.MemoryBytes()
	// Guest memory counts twice: a capture writes it to files, and their pages are charged to this
	// group until they are on disk.
	out := cgroup.Limits{Memory: 2*guest + guest/tables + vmmMemory, PIDs: shape.VCPUs + vmmThreads, Whole: true}
	out = out.Only(have)
	asked := askedLimits(l, disk)
	if asked.Memory == 0 {
		asked.Memory = out.Memory
	}
	asked.Whole, asked.PIDs = out.Whole, out.PIDs
	return asked
}

// askedLimits returns the requested limits. It sets no memory.high below memory.max: guest memory
// cannot be reclaimed. With memory.high, a guest that allocates slowly would be throttled at its
// limit forever (test/pressure), neither ended nor usable.
func askedLimits(l sandbox.Limits, disk string) cgroup.Limits {
	out := cgroup.Limits{Memory: int64(l.MemoryMiB) << 20, CPUs: l.CPUs, Weight: l.CPUWeight}
	if l.DiskReadMiB > 0 || l.DiskWriteMiB > 0 {
		out.Disk = cgroup.DiskLimits{Device: disk, ReadBPS: int64(l.DiskReadMiB) << 20, WriteBPS: int64(l.DiskWriteMiB) << 20}
	}
	return out
}

// treeOf returns the group around the groups of a tree, if the tree has a budget.
func treeOf(b Bounds) cgroup.Tree {
	if !b.inTree() {
		return cgroup.Tree{}
	}
	t := b.Limits.Tree
	return cgroup.Tree{Name: b.Tree, Limits: cgroup.Limits{Memory: int64(t.MemoryMiB) << 20, CPUs: t.CPUs, PIDs: t.PIDs}}
}

// CheckLimits returns an error if this host cannot enforce the limits.
func (s *Supervisor) CheckLimits(l sandbox.Limits) error {
	if ofGroup(l) == (sandbox.Limits{}) {
		return nil
	}
	if s.cfg.Groups == nil {
		return unsupported(errors.New("the daemon has no cgroup v2 to make groups in"))
	}
	disk, err := s.disk(l)
	if err != nil {
		return err
	}
	have := s.cfg.Groups.Controllers()
	tree := treeOf(Bounds{Limits: l}).Limits
	if err := errors.Join(askedLimits(l, disk).Check(have), tree.Check(have)); err != nil {
		return unsupported(err)
	}
	return nil
}

func unsupported(err error) error {
	return sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonLimitUnsupported,
		"these limits cannot be enforced on this host: %w", err)
}

// disk returns the device of the sandboxes' disks, if a limit needs it.
func (s *Supervisor) disk(l sandbox.Limits) (string, error) {
	if l.DiskReadMiB == 0 && l.DiskWriteMiB == 0 {
		return "", nil
	}
	disk, err := cgroup.DeviceOf(s.cfg.Overlays)
	if err != nil {
		return "", unsupported(err)
	}
	return disk, nil
}

// bound creates the group for a VM. It returns nil if this host has no groups.
func (s *Supervisor) bound(shape vmspec.Shape, b Bounds) (*group, error) {
	if s.cfg.Groups == nil {
		return nil, s.CheckLimits(b.Limits)
	}
	disk, err := s.disk(b.Limits)
	if err != nil {
		return nil, err
	}
	g, err := s.cfg.Groups.New(b.Owner, treeOf(b), groupLimits(shape, b.Limits, s.cfg.Groups.Controllers(), disk))
	if err != nil {
		return nil, fmt.Errorf("limit VM: %w", err)
	}
	return s.group(g), nil
}

// group is the cgroup of a VM's process. Its methods do nothing if it is nil, and are safe for
// concurrent use.
type group struct {
	*cgroup.Group
	end func() string // see ended
}

func (s *Supervisor) group(g *cgroup.Group) *group {
	return &group{Group: g, end: sync.OnceValue(func() string {
		why := killed(g)
		if err := g.Remove(); err != nil {
			s.cfg.Log.Warn("remove the cgroup of an ended VM", "cgroup", g.Name(), "err", err)
		}
		return why
	})}
}

// ended removes the group of an ended process. It returns the reason if the kernel killed the
// process for lack of memory.
func (g *group) ended() string {
	if g == nil {
		return ""
	}
	return g.end()
}

func (g *group) open() (*os.File, error) {
	if g == nil {
		return nil, nil
	}
	return g.Open()
}

// name returns its name for the journal.
func (g *group) name() string {
	if g == nil {
		return ""
	}
	return g.Name()
}

func killed(g *cgroup.Group) string {
	switch by, limit := g.Killed(); by {
	case cgroup.ByOwn:
		return fmt.Sprintf("memory limit of %d MiB reached", limit>>20)
	case cgroup.ByTree:
		return fmt.Sprintf("memory limit of %d MiB of its tree of forks reached", limit>>20)
	case cgroup.ByHost:
		return "the host ran out of memory, and ended it"
	}
	return ""
}

// Limit applies bounds, which must not be Apart, to a VM started without limits. If the VM was
// started for another owner, Limit begins to move it to the new owner's group, and Settle waits for
// the move.
func (m *VM) Limit(b Bounds) error {
	g := m.group.Load()
	if g == nil {
		return m.sup.CheckLimits(b.Limits)
	}
	if ofGroup(b.Limits) != (sandbox.Limits{}) {
		disk, err := m.sup.disk(b.Limits)
		if err != nil {
			return err
		}
		if err := g.Set(askedLimits(b.Limits, disk)); err != nil {
			return err
		}
	}
	m.moveTo(b)
	return nil
}

// Use returns the VM's use of host resources. It returns nil if the host has no accounting, or the
// VM has ended.
func (m *VM) Use() *sandbox.Use {
	g := m.group.Load()
	if g == nil {
		return nil
	}
	u, err := g.Use()
	if err != nil {
		return nil
	}
	return &sandbox.Use{Memory: u.Memory, Peak: u.Peak, CPU: u.CPU, Throttled: u.Throttled, Threads: u.PIDs,
		DiskRead: u.Read, DiskWritten: u.Written}
}

// Group returns the name of the VM's cgroup. It is empty if the VM has no cgroup.
func (m *VM) Group() string { return m.group.Load().name() }

// find returns the group named in a journal, or nil.
func (s *Supervisor) find(name string) *group {
	if s.cfg.Groups == nil || name == "" {
		return nil
	}
	if g := s.cfg.Groups.Find(name); g != nil {
		return s.group(g)
	}
	return nil
}

// SweepGroups removes the groups that have no VM any more. used contains the groups of running VMs.
func (s *Supervisor) SweepGroups(used map[string]bool) {
	if s.cfg.Groups == nil {
		return
	}
	if err := s.cfg.Groups.Sweep(used); err != nil {
		s.cfg.Log.Warn("remove left-over cgroups", "err", err)
	}
}
