package sandbox

import (
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Limits bound what one sandbox may use of its host. What is zero has no limit that was asked
// for. Children that its guest forks have the same.
type Limits struct {
	// MemoryMiB is host memory: the guest's pages of its own, its VMM's, and the page cache of
	// what it reads and writes. A VM that needs more is ended.
	MemoryMiB int     `json:"memory_mib,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"` // 0.5: half of the time of one CPU. More has to wait
	// CPUWeight is its share where CPUs are short, of a tenant's among those of the tenant; others have 100.
	CPUWeight int `json:"cpu_weight,omitempty"`
	// DiskReadMiB and DiskWriteMiB are MiB a second, from and to the disk of the store.
	DiskReadMiB  int `json:"disk_read_mib,omitempty"`
	DiskWriteMiB int `json:"disk_write_mib,omitempty"`
	// DiskMiB is how much of the store what it writes to its disk may take. One that is there
	// stands still.
	DiskMiB int `json:"disk_mib,omitempty"`
	// NetMiB is MiB a second from its network, and as many to it. Beyond that it waits.
	NetMiB int `json:"net_mib,omitempty"`
	// Tree is one budget for it and all that descend from it by forks in guests.
	Tree TreeBudget `json:"tree,omitzero"`
}

// TreeBudget is of a whole tree, on top of what each sandbox in it may use.
type TreeBudget struct {
	MemoryMiB int     `json:"memory_mib,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"`
	PIDs      int     `json:"pids,omitempty"` // threads of its VMMs
	// DiskMiB is how much of the store what the tree writes to its disks may take. It is given out by
	// forks: each sandbox may fill its Limits.DiskMiB, and what it had written stays under the fork.
	DiskMiB int `json:"disk_mib,omitempty"`
	// NetMiB is MiB a second from the network to all of the tree, and as many to it.
	NetMiB int `json:"net_mib,omitempty"`
}

// OfGroup is what a cgroup enforces of it.
func (b TreeBudget) OfGroup() TreeBudget {
	b.DiskMiB, b.NetMiB = 0, 0
	return b
}

// Bounds of Limits. A VMM needs most of the least memory for itself.
const (
	MinMemoryLimitMiB = 32
	MinDiskLimitMiB   = 16
	MinCPUs           = 0.01
	DefaultCPUWeight  = 100 // of a sandbox or a tenant without a weight, and the most that a tenant's key can ask for
	MaxCPUWeight      = 10_000
	MaxNetMiB         = 1 << 20
	MaxDiskRateMiB    = 1 << 20
	MinTreePIDs       = 32
	MaxTreePIDs       = 1 << 22 // the most that Linux counts
	MaxLimitMiB       = 1 << 30 // of memory and disk; in bytes it is far from the end of an int64
	MaxCPUs           = 1 << 16
)

// checkHighest refuses numbers that no host has, and that sums and the kernel's files cannot hold.
func (l Limits) checkHighest() error {
	for _, one := range []struct {
		name        string
		value, most float64
	}{
		{"memory limit in MiB", float64(l.MemoryMiB), MaxLimitMiB},
		{"memory limit of the tree in MiB", float64(l.Tree.MemoryMiB), MaxLimitMiB},
		{"CPU limit", l.CPUs, MaxCPUs},
		{"CPU limit of the tree", l.Tree.CPUs, MaxCPUs},
		{"disk limit in MiB", float64(l.DiskMiB), MaxLimitMiB},
		{"tree's disk budget in MiB", float64(l.Tree.DiskMiB), MaxLimitMiB},
		{"limit of disk reads in MiB a second", float64(l.DiskReadMiB), MaxDiskRateMiB},
		{"limit of disk writes in MiB a second", float64(l.DiskWriteMiB), MaxDiskRateMiB},
		{"tree's limit of threads", float64(l.Tree.PIDs), MaxTreePIDs},
	} {
		if one.value > one.most {
			return Errorf(ErrInvalid, "", "the %s is %.0f, want at most %.0f", one.name, one.value, one.most)
		}
	}
	return nil
}

// Check says whether there can be such limits. mayFork: its guest may fork it.
func (l Limits) Check(mayFork bool) error {
	if err := l.checkHighest(); err != nil {
		return err
	}
	for name, mib := range map[string]int{"memory limit": l.MemoryMiB, "memory limit of the tree": l.Tree.MemoryMiB} {
		if mib != 0 && mib < MinMemoryLimitMiB {
			return Errorf(ErrInvalid, "", "the %s is %d MiB, want at least %d", name, mib, MinMemoryLimitMiB)
		}
	}
	for name, cpus := range map[string]float64{"CPU limit": l.CPUs, "CPU limit of the tree": l.Tree.CPUs} {
		if cpus != 0 && !(cpus >= MinCPUs) {
			return Errorf(ErrInvalid, "", "the %s is %g CPUs, want at least %g", name, cpus, MinCPUs)
		}
	}
	switch {
	case l.CPUWeight < 0 || l.CPUWeight > MaxCPUWeight:
		return Errorf(ErrInvalid, "", "the CPU weight is %d, want 1 to %d", l.CPUWeight, MaxCPUWeight)
	case l.DiskMiB != 0 && l.DiskMiB < MinDiskLimitMiB:
		return Errorf(ErrInvalid, "", "the disk limit is %d MiB, want at least %d", l.DiskMiB, MinDiskLimitMiB)
	case l.DiskReadMiB < 0 || l.DiskWriteMiB < 0:
		return Errorf(ErrInvalid, "", "a disk limit is less than 0")
	case l.NetMiB < 0 || l.NetMiB > MaxNetMiB:
		return Errorf(ErrInvalid, "", "the network limit is %d MiB a second, want 1 to %d", l.NetMiB, MaxNetMiB)
	case l.Tree.NetMiB < 0 || l.Tree.NetMiB > MaxNetMiB:
		return Errorf(ErrInvalid, "", "the network limit of the tree is %d MiB a second, want 1 to %d",
			l.Tree.NetMiB, MaxNetMiB)
	case l.Tree.PIDs != 0 && l.Tree.PIDs < MinTreePIDs:
		return Errorf(ErrInvalid, "", "the tree's limit of threads is %d, want at least %d", l.Tree.PIDs, MinTreePIDs)
	case l.Tree.DiskMiB != 0 && l.DiskMiB == 0:
		return Errorf(ErrInvalid, "", "a tree's disk budget needs a disk limit for each sandbox in it")
	case l.Tree.DiskMiB != 0 && l.Tree.DiskMiB < l.DiskMiB:
		return Errorf(ErrInvalid, "", "the tree's disk budget is %d MiB, less than the %d MiB of each sandbox in it",
			l.Tree.DiskMiB, l.DiskMiB)
	case l.Tree != TreeBudget{} && !mayFork:
		return Errorf(ErrInvalid, "", "a budget for a tree of forks needs guest_fork")
	}
	return nil
}

// OfNetwork is what is left of a policy under the limits. A policy that allows nothing stays that.
func (l Limits) OfNetwork(s netpolicy.Spec) netpolicy.Spec {
	rate := int64(l.NetMiB) << 20
	if rate > 0 && NameOf(s) != PolicyNone && (s.Limits.BytesPerSecond == 0 || rate < s.Limits.BytesPerSecond) {
		s.Limits.BytesPerSecond = rate
	}
	return s
}

// NetTree is what the sandbox of that id and kin has of its network with others of its tree.
func (l Limits) NetTree(id string, k Kin) NetTree {
	if l.Tree.NetMiB == 0 {
		return NetTree{}
	}
	return NetTree{Root: k.RootOf(id), BytesPerSecond: int64(l.Tree.NetMiB) << 20}
}

// Use is what a sandbox uses of its host, as the kernel accounts for its VMM's group.
type Use struct {
	Memory, Peak int64         // bytes, as Limits.MemoryMiB has them
	CPU          time.Duration // of all its CPUs, since it was made
	Throttled    time.Duration // for which a CPU limit held it up
	Threads      int           // of its VMM
	// DiskRead and DiskWritten are bytes from and to the host's disks: what the page cache has is no disk's.
	DiskRead, DiskWritten int64
	Net                   NetUse
}
