package main

import (
	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
)

// limitFlags are the flags for limits of sandboxes' host resources.
type limitFlags struct {
	memoryMiB int
	rest      api.SandboxLimits
}

func (l *limitFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&l.memoryMiB, "memory-limit-mib", 0,
		"host memory that each may use; one that needs more is ended (default: no limit)")
	f.Float64Var(&l.rest.CPUs, "cpus", 0, "CPUs that each may use, such as 0.5 (default: no limit)")
	f.IntVar(&l.rest.CPUWeight, "cpu-weight", 0, "share of each where CPUs are short, 1 to 10000 (default: 100)")
	f.IntVar(&l.rest.DiskReadLimitMiB, "disk-read-limit-mib", 0,
		"MiB a second that each may read from the daemon's disk (default: no limit)")
	f.IntVar(&l.rest.DiskWriteLimitMiB, "disk-write-limit-mib", 0,
		"MiB a second that each may write to it (default: no limit)")
	f.IntVar(&l.rest.DiskLimitMiB, "disk-limit-mib", 0,
		"MiB of the daemon's disk that each may fill; one that has them stands still (default: no limit)")
	f.IntVar(&l.rest.NetRateMiB, "net-rate-mib", 0,
		"MiB a second that each may have from its network, and as many to it (default: no limit)")
}

// addTreeFlags adds the flags for trees of guest forks.
func (l *limitFlags) addTreeFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&l.rest.TreeMemoryLimitMiB, "tree-memory-limit-mib", 0,
		"host memory of each and all that its guest forks together, with --guest-fork (default: no limit)")
	f.Float64Var(&l.rest.TreeCPUs, "tree-cpus", 0, "CPUs that those may use together (default: no limit)")
	f.IntVar(&l.rest.TreePIDs, "tree-pids", 0,
		"threads that their VMMs may have together: a fork beyond that is refused (default: no limit)")
	f.IntVar(&l.rest.TreeDiskLimitMiB, "tree-disk-limit-mib", 0,
		"MiB of the daemon's disk that they may fill together, with --disk-limit-mib (default: no limit)")
	f.IntVar(&l.rest.TreeNetRateMiB, "tree-net-rate-mib", 0,
		"MiB a second that they may have from their network together, and as many to it (default: no limit)")
}

// ask adds the limits to a request.
func (l *limitFlags) ask(req *api.CreateSandboxesRequest) {
	req.SandboxLimits = l.rest
	if l.memoryMiB != 0 {
		req.MemoryLimitMiB = &l.memoryMiB
	}
}
