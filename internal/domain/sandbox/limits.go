package sandbox

import (
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Limits bound a sandbox's use of its host. Zero fields set no limit. Children forked by its guest have the same
// limits.
type Limits struct {
	// MemoryMiB limits host memory: the guest's private pages, the VMM's memory, and the page cache of the files
	// it reads and writes. A VM above the limit is ended.
	MemoryMiB int     `json:"memory_mib,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"` // 0.5 is half of the time of one CPU; beyond that it has to wait
	// CPUWeight is its share when CPUs are short; a tenant's sandbox shares with the tenant's others. The default
	// is 100.
	CPUWeight int `json:"cpu_weight,omitempty"`
	// DiskReadMiB and DiskWriteMiB limit transfers from and to the store's disk, in MiB per second.
	DiskReadMiB  int `json:"disk_read_mib,omitempty"`
	DiskWriteMiB int `json:"disk_write_mib,omitempty"`
	// DiskMiB limits the store's space for the data it writes to its disk. A sandbox at the limit stalls.
	DiskMiB int `json:"disk_mib,omitempty"`
	// NetMiB limits network traffic in each direction, in MiB per second. Traffic beyond it waits.
	NetMiB int `json:"net_mib,omitempty"`
	// Tree is the shared budget of the sandbox and all of its descendants forked by guests.
	Tree TreeBudget `json:"tree,omitzero"`
}

// TreeBudget limits a whole tree, in addition to the limits of each sandbox.
type TreeBudget struct {
	MemoryMiB int     `json:"memory_mib,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"`
	PIDs      int     `json:"pids,omitempty"` // threads of its VMMs
	// DiskMiB limits the store's space for the data that the tree writes to its disks. Forks allocate it: each
	// sandbox may fill its Limits.DiskMiB, and data written before a fork stays below the children.
	DiskMiB int `json:"disk_mib,omitempty"`
	// NetMiB limits the tree's network traffic in each direction, in MiB per second.
	NetMiB int `json:"net_mib,omitempty"`
}

// OfGroup returns the part of the budget that a cgroup enforces.
func (b TreeBudget) OfGroup() TreeBudget {
	b.DiskMiB, b.NetMiB = 0, 0
	return b
}

// Bounds of Limits. A VMM needs most of the lowest memory limit for itself.
const (
	MinMemoryLimitMiB = 32
	MinDiskLimitMiB   = 16
	MinCPUs           = 0.01
	// DefaultCPUWeight is the weight of a sandbox or tenant without one, and the most that a tenant's key can ask
	// for.
	DefaultCPUWeight = 100
	MaxCPUWeight     = 10_000
	MaxNetMiB        = 1 << 20
	MaxDiskRateMiB   = 1 << 20
	MinTreePIDs      = 32
	MaxTreePIDs      = 1 << 22 // Linux's maximum
	MaxLimitMiB      = 1 << 30 // of memory and disk; in bytes it is far below the maximum of an int64
	MaxCPUs          = 1 << 16
)

// checkHighest rejects numbers too large for any host, for sums and for the kernel's files.
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

// Check returns an error if the limits are invalid. mayFork is whether its guest may fork it.
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

// OfNetwork returns the policy with these limits applied. A policy that allows nothing is unchanged.
func (l Limits) OfNetwork(s netpolicy.Spec) netpolicy.Spec {
	rate := int64(l.NetMiB) << 20
	if rate > 0 && NameOf(s) != PolicyNone && (s.Limits.BytesPerSecond == 0 || rate < s.Limits.BytesPerSecond) {
		s.Limits.BytesPerSecond = rate
	}
	return s
}

// NetTree returns the bandwidth that the sandbox shares with its tree.
func (l Limits) NetTree(id string, k Kin) NetTree {
	if l.Tree.NetMiB == 0 {
		return NetTree{}
	}
	return NetTree{Root: k.RootOf(id), BytesPerSecond: int64(l.Tree.NetMiB) << 20}
}

// Use is a sandbox's resource usage, from the kernel's accounting of its VMM's group.
type Use struct {
	Memory, Peak int64         // bytes, counted as in Limits.MemoryMiB
	CPU          time.Duration // over all CPUs, since it was created
	Throttled    time.Duration // time it waited because of a CPU limit
	Threads      int           // of its VMM
	// DiskRead and DiskWritten are bytes from and to the host's disks. Reads from the page cache do not count.
	DiskRead, DiskWritten int64
	Net                   NetUse
}
