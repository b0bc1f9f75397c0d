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

// Bounds are what a VM is kept within.
type Bounds struct {
	Limits sandbox.Limits
	Tree   string // root of the tree that it is in, for the tree's budget
	Owner  string // the tenant whose weight it has a part of; empty: the operator
}

// BoundsOf are those of a sandbox.
func BoundsOf(i sandbox.Info) Bounds {
	return Bounds{Limits: i.Limits, Tree: i.Kin.RootOf(i.ID), Owner: i.Owner}
}

// Apart reports whether a VM's process has to be started for these bounds: one that runs cannot
// be moved to the group of a tree at a cost that a fork could bear (package cgroup), and a shell
// that is prepared has its disks already, without a limit.
func (b Bounds) Apart() bool { return b.inTree() || b.Limits.DiskMiB != 0 }

func (b Bounds) inTree() bool { return b.Limits.Tree.OfGroup() != sandbox.TreeBudget{} }

// ofGroup are the limits that a cgroup enforces: those of the disk's space are its VMM's and its forks', those
// of the network forkd-net's.
func ofGroup(l sandbox.Limits) sandbox.Limits {
	l.DiskMiB, l.NetMiB, l.Tree = 0, 0, l.Tree.OfGroup()
	return l
}

// What a VM has that asked for no limit, so that a VMM which does what it should not is not
// the host's end.
const (
	// vmmMemory is what a VMM needs beside guest memory, its share of page tables apart.
	vmmMemory = 128 << 20
	// tables is how much guest memory needs a byte of page tables: KVM's and the host's are
	// 1/256 together, and nested ones as much again.
	tables = 64
	// vmmThreads are beside vCPUs. The Go runtime makes a thread for each system call that waits, and
	// ends the process if it cannot: this is far from what a VMM has, and far from a host's limit.
	vmmThreads = 64
)

// groupLimits are the limits of a VM's group: those that were asked for, and for the rest what
// each VM has as far as the host has controllers.
func groupLimits(shape vmspec.Shape, l sandbox.Limits, have []cgroup.Controller, disk string) cgroup.Limits {
	guest := shape.MemoryBytes()
	// Guest memory twice: a capture writes it to files whose pages this group has until they are on disk.
	out := cgroup.Limits{Memory: 2*guest + guest/tables + vmmMemory, PIDs: shape.VCPUs + vmmThreads, Whole: true}
	out = out.Only(have)
	asked := askedLimits(l, disk)
	if asked.Memory == 0 {
		asked.Memory = out.Memory
	}
	asked.Whole, asked.PIDs = out.Whole, out.PIDs
	return asked
}

// askedLimits are those that were asked for. There is no memory.high below memory.max: a guest's memory
// cannot be taken back, so what it did was to let a guest that asks slowly stand before its limit for
// ever (test/pressure), neither ended nor of any use.
func askedLimits(l sandbox.Limits, disk string) cgroup.Limits {
	out := cgroup.Limits{Memory: int64(l.MemoryMiB) << 20, CPUs: l.CPUs, Weight: l.CPUWeight}
	if l.DiskReadMiB > 0 || l.DiskWriteMiB > 0 {
		out.Disk = cgroup.DiskLimits{Device: disk, ReadBPS: int64(l.DiskReadMiB) << 20, WriteBPS: int64(l.DiskWriteMiB) << 20}
	}
	return out
}

// treeOf is the group around those of a tree, if it has a budget.
func treeOf(b Bounds) cgroup.Tree {
	if !b.inTree() {
		return cgroup.Tree{}
	}
	t := b.Limits.Tree
	return cgroup.Tree{Name: b.Tree, Limits: cgroup.Limits{Memory: int64(t.MemoryMiB) << 20, CPUs: t.CPUs, PIDs: t.PIDs}}
}

// CheckLimits says whether this host can keep a VM within such limits.
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

// disk names the disk that sandboxes' disks are on, if a limit needs it.
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

// bound makes the group for a VM; nil: this host has none.
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

// group is what a VM's process was started in. Its methods do nothing of nil, and are safe
// for concurrent use.
type group struct {
	*cgroup.Group
	end func() string // see ended
}

func (s *Supervisor) group(g *cgroup.Group) *group {
	return &group{Group: g, end: sync.OnceValue(func() string {
		why := killed(g)
		if err := g.Remove(); err != nil {
			s.cfg.Log.Warn("remove the cgroup of a VM that has ended", "cgroup", g.Name(), "err", err)
		}
		return why
	})}
}

// ended removes the group of a process that has ended. It says why the kernel killed that, if
// it did so for want of memory.
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

// name is what the journal has of it.
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

// Limit keeps a VM that was started without limits within these, which are not Apart. If it was started
// for another owner it begins to move to the owner's group, and Settle waits for that.
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

// Use is what the VM uses of its host; nil: the host does not account for it, or it has ended.
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

// Group names the VM's cgroup; empty: it has none.
func (m *VM) Group() string { return m.group.Load().name() }

// find is the group that a journal names; nil: there is none.
func (s *Supervisor) find(name string) *group {
	if s.cfg.Groups == nil || name == "" {
		return nil
	}
	if g := s.cfg.Groups.Find(name); g != nil {
		return s.group(g)
	}
	return nil
}

// SweepGroups removes the groups that no VM is in any more. used are those of VMs that run.
func (s *Supervisor) SweepGroups(used map[string]bool) {
	if s.cfg.Groups == nil {
		return
	}
	if err := s.cfg.Groups.Sweep(used); err != nil {
		s.cfg.Log.Warn("remove left-over cgroups", "err", err)
	}
}
