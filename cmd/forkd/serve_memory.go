//go:build linux

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// Limits of the default of --daemon-memory-limit, in MiB. A daemon with 1000 sandboxes uses about
// 200 MiB. The rest is page cache of the files it writes, which the kernel reclaims first.
const (
	minDaemonMiB = 1 << 10
	maxDaemonMiB = 16 << 10
	// daemonShare is the divisor of the host's memory for the default limit: a quarter.
	daemonShare = 4
)

// memoryOptions limit the memory of the daemon itself. VMMs have separate limits.
type memoryOptions struct {
	limitMiB int // negative: the default
}

func (o *memoryOptions) addFlags(f *pflag.FlagSet) {
	f.IntVar(&o.limitMiB, "daemon-memory-limit", -1,
		"limit the daemon's own processes to `MIB`; beyond it the daemon restarts and VMs keep running; 0: "+
			"no limit (default: a quarter of the host's, 1024 to 16384)")
	f.Lookup("daemon-memory-limit").DefValue = "0" // keeps -1 out of the help
}

func (o *memoryOptions) complete() error {
	if o.limitMiB != -1 && o.limitMiB != 0 && o.limitMiB < 128 {
		return exit.UsageError{Err: fmt.Errorf("--daemon-memory-limit %d: want at least 128 MiB, or 0 for no limit",
			o.limitMiB)}
	}
	return nil
}

// bytes returns the limit, or 0 for no limit.
func (o *memoryOptions) bytes() int64 {
	if o.limitMiB >= 0 {
		return int64(o.limitMiB) << 20
	}
	_, total, err := hostproc.Memory()
	if err != nil {
		return minDaemonMiB << 20
	}
	return max(minDaemonMiB<<20, min(total/daemonShare, maxDaemonMiB<<20))
}

// apply limits the daemon's memory. The garbage collector works harder from three quarters of the
// limit, and the kernel enforces the limit by the daemon's cgroup. A fault of the daemon then costs
// a restart, which adopts the VMs, and never a VM.
func (o *memoryOptions) apply(groups *cgroup.Root, log *slog.Logger, opened *undo.Stack) {
	if err := unprotect(); err != nil {
		log.Warn("the kernel may end VMs before the daemon", "err", err)
	}
	limit := o.bytes()
	if limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 4 * 3)
	}
	if groups == nil {
		if limit > 0 {
			log.Warn("the kernel does not enforce the daemon's memory limit: there are no cgroups", "limit_mib", limit>>20)
		}
		return
	}
	own, err := groups.LimitSelf(limit)
	if errors.Is(err, cgroup.ErrUnsupported) {
		log.Info("the daemon's memory is limited by its service manager, or not at all", "soft_limit_mib", softLimit())
		return
	}
	if err != nil {
		log.Warn("the kernel does not enforce the daemon's memory limit", "limit_mib", limit>>20, "err", err)
		return
	}
	opened.Push(own.Close)
	log.Info("the daemon's memory is limited", "limit_mib", limit>>20, "soft_limit_mib", softLimit())
	if n := own.OOMKills(); n > 0 {
		log.Warn("the kernel has killed processes of this or an earlier daemon at the memory limit", "kills", n)
	}
}

// unprotect raises an inherited negative oom_score_adj to 0. The daemon parses data of guests, so
// it must not outlive the VMs when the host is out of memory.
func unprotect() error {
	const file = "/proc/self/oom_score_adj"
	b, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(b), "-") {
		return err
	}
	return os.WriteFile(file, []byte("0"), 0)
}

// softLimit returns the limit of the Go runtime in MiB, or 0 for no limit.
func softLimit() int64 {
	if n := debug.SetMemoryLimit(-1); n != math.MaxInt64 {
		return n >> 20
	}
	return 0
}
