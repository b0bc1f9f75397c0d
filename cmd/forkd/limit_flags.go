package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
)

// limitFlags are the flags for limits of sandboxes' host resources.
type limitFlags struct {
	memoryMiB int
	rest      api.SandboxLimits
}

func (l *limitFlags) addFlags(cmd *cobra.Command) {
	section(cmd.Flags(), "Limits", func(f *pflag.FlagSet) {
		f.IntVar(&l.memoryMiB, "memory-limit-mib", 0,
			"limit the host memory of each sandbox to `MIB`; beyond it the sandbox is ended (default: no limit)")
		f.Float64Var(&l.rest.CPUs, "cpus", 0, "limit each sandbox to `N` CPUs, such as 0.5 (default: no limit)")
		f.IntVar(&l.rest.CPUWeight, "cpu-weight", 0,
			"set the CPU share of each sandbox under contention to `N`, 1 to 10000 (default: 100)")
		f.IntVar(&l.rest.DiskReadLimitMiB, "disk-read-limit-mib", 0,
			"limit each sandbox's reads from the daemon's disk to `MIB` per second (default: no limit)")
		f.IntVar(&l.rest.DiskWriteLimitMiB, "disk-write-limit-mib", 0,
			"limit each sandbox's writes to the daemon's disk to `MIB` per second (default: no limit)")
		f.IntVar(&l.rest.DiskLimitMiB, "disk-limit-mib", 0,
			"limit each sandbox's use of the daemon's disk to `MIB`; a full sandbox stalls (default: no limit)")
		f.IntVar(&l.rest.NetRateMiB, "net-rate-mib", 0,
			"limit each sandbox's network to `MIB` per second in each direction (default: no limit)")
	})
}

// addTreeFlags adds the flags for trees of guest forks.
func (l *limitFlags) addTreeFlags(cmd *cobra.Command) {
	section(cmd.Flags(), "Limits of the tree of guest forks", func(f *pflag.FlagSet) {
		f.IntVar(&l.rest.TreeMemoryLimitMiB, "tree-memory-limit-mib", 0,
			"limit the host memory of the fork tree to `MIB`, with --guest-fork (default: no limit)")
		f.Float64Var(&l.rest.TreeCPUs, "tree-cpus", 0, "limit the fork tree to `N` CPUs (default: no limit)")
		f.IntVar(&l.rest.TreePIDs, "tree-pids", 0,
			"limit the VMMs of the fork tree to `N` threads; further forks are refused (default: no limit)")
		f.IntVar(&l.rest.TreeDiskLimitMiB, "tree-disk-limit-mib", 0,
			"limit the fork tree's use of the daemon's disk to `MIB`, with --disk-limit-mib (default: no limit)")
		f.IntVar(&l.rest.TreeNetRateMiB, "tree-net-rate-mib", 0,
			"limit the fork tree's network to `MIB` per second in each direction (default: no limit)")
	})
}

// ask adds the limits to a request.
func (l *limitFlags) ask(req *api.CreateSandboxesRequest) {
	req.SandboxLimits = l.rest
	if l.memoryMiB != 0 {
		req.MemoryLimitMiB = &l.memoryMiB
	}
}
