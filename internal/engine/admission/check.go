package admission

import (
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// Descriptors and threads that stay free, for requests and for the host's other programs.
const (
	spareFiles   = 256
	spareThreads = 512
)

// state holds the host's resources at the time of a request.
type state struct {
	facts    hostproc.Facts
	pending  Need
	promised Promised // to running sandboxes
	bounds   bounds
}

// check returns an error that names the first insufficient resource.
func (s state) check(r request) error {
	need := r.sum()
	if err := s.memory(r, need); err != nil || !r.vms {
		return err
	}
	for _, f := range []func(request, Need) error{s.memoryPromise, s.disk, s.diskPromise, s.files, s.threads} {
		if err := f(r, need); err != nil {
			return err
		}
	}
	return nil
}

// forVMs formats the number of VMs.
func (r request) forVMs(each string) string {
	switch {
	case r.n == 1:
		return ""
	case each == "":
		return fmt.Sprintf(" for %d VMs", r.n)
	}
	return fmt.Sprintf(" for %d VMs of %s each", r.n, each)
}

func mib(bytes int64) string { return fmt.Sprintf("%d MiB", max(0, bytes)>>20) }

// memoryFree returns the memory that may be taken immediately.
func (s state) memoryFree() int64 {
	return s.facts.MemoryAvailable - s.pending.Memory - s.bounds.memoryReserve
}

func (s state) memory(r request, need Need) error {
	left := s.memoryFree()
	if left >= need.Memory {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrNoMemory, sandbox.ReasonHostMemory,
		"not enough memory: %s needed%s, %s available without the reserve of %s",
		mib(need.Memory), r.forVMs(mib(r.each.Memory)), mib(left), mib(s.bounds.memoryReserve))
}

// mayPromiseMemory returns the limit of all promised memory. 0 means no limit.
func (s state) mayPromiseMemory() int64 {
	return overcommit(s.facts.MemoryTotal, s.bounds.memoryOvercommit)
}

func (s state) memoryPromise(r request, need Need) error {
	already, most := s.promised.Memory+s.pending.Promised.Memory, s.mayPromiseMemory()
	if most == 0 || already+need.Promised.Memory <= most {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrNoMemory, sandbox.ReasonMemoryPromised,
		"too much memory would be promised: %s more%s, %s are promised already, and the bound is %s: %g times the "+
			"host's %s",
		mib(need.Promised.Memory), r.forVMs(mib(r.each.Promised.Memory)), mib(already), mib(most),
		s.bounds.memoryOvercommit, mib(s.facts.MemoryTotal))
}

func (s state) diskFree() int64 { return s.facts.DiskFree - s.pending.Disk - s.bounds.diskReserve }

func (s state) disk(r request, need Need) error {
	left := s.diskFree()
	if need.Disk == 0 || left >= need.Disk {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrNoSpace, sandbox.ReasonStoreFull,
		"no space left in the store: %d KiB needed%s, %s free including the reserve of %s",
		need.Disk>>10, r.forVMs(""), mib(s.facts.DiskFree-s.pending.Disk), mib(s.bounds.diskReserve))
}

func (s state) mayPromiseDisk() int64 { return overcommit(s.facts.DiskTotal, s.bounds.diskOvercommit) }

func (s state) diskPromise(r request, need Need) error {
	already, most := s.promised.Disk+s.pending.Promised.Disk, s.mayPromiseDisk()
	if most == 0 || need.Promised.Disk == 0 || already+need.Promised.Disk <= most {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrNoSpace, sandbox.ReasonDiskPromised,
		"too much disk would be promised: %s more%s, %s are promised already, and the bound is %s: %g times the "+
			"store's %s",
		mib(need.Promised.Disk), r.forVMs(mib(r.each.Promised.Disk)), mib(already), mib(most), s.bounds.diskOvercommit,
		mib(s.facts.DiskTotal))
}

func (s state) filesFree() int64 {
	return s.facts.MaxFiles - s.facts.Files - s.pending.Files - spareFiles
}

func (s state) files(r request, need Need) error {
	left := s.filesFree()
	if s.facts.MaxFiles == 0 || left >= need.Files {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrNoResources, sandbox.ReasonHostDescriptors,
		"not enough descriptors: %d needed%s, %d of %d available (the daemon's limit of open files)",
		need.Files, r.forVMs(""), max(0, left), s.facts.MaxFiles)
}

// threadsFree returns the threads left on the host, or in the group around the VMs if that has
// fewer.
func (s state) threadsFree() (left, of int64, setting string) {
	f := s.facts
	left, of, setting = f.MaxThreads-f.Threads, f.MaxThreads, "kernel.pid_max, kernel.threads-max"
	if in := f.MaxGroupThreads - f.GroupThreads; f.MaxGroupThreads > 0 && (of == 0 || in < left) {
		left, of, setting = in, f.MaxGroupThreads, "pids.max of the cgroup around it: TasksMax"
	}
	return left - s.pending.Threads - spareThreads, of, setting
}

func (s state) threads(r request, need Need) error {
	left, of, setting := s.threadsFree()
	if of == 0 || left >= need.Threads {
		return nil
	}
	return sandbox.Errorf(sandbox.ErrNoResources, sandbox.ReasonHostThreads,
		"not enough threads: %d needed%s, %d of %d available (%s)", need.Threads, r.forVMs(""), max(0, left), of, setting)
}

// overcommit returns a limit. 0 means no limit.
func overcommit(of int64, times float64) int64 {
	if times == 0 || of == 0 {
		return 0
	}
	return int64(float64(of) * times)
}
