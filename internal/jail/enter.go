package jail

import (
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/seccomp"
)

// FDs are the descriptors of a process that enters a jail.
type FDs struct {
	Proc int // where its own directory of /proc goes: one of those that the VMM keeps
	// Program is the VMM's, opened by path. It and the next, on which the caller reports, are
	// closed by the exec, as are those above; those below stay.
	Program int
}

// step takes one thing away.
type step struct {
	part Part
	do   func() error
}

// steps are in the order in which each still may do what it does: the file systems before
// the capabilities, those before no_new_privs, which Landlock needs. The filter of system
// calls is the last: it denies what others do.
func (p Plan) steps(f FDs) []step {
	return []step{
		{OOM, raiseOOMScore},
		{Root, emptyRoot},
		{Limits, p.limit},
		{Descriptors, func() error { return closeOthers(f.Program) }},
		{Caps, dropBounding},
		{User, p.becomeUser},
		{Caps, dropCapabilities},
		{NoNewPrivs, noNewPrivs},
		{Files, func() error { return restrictFiles(f.Program, f.Proc) }},
		{TCP, restrictTCP},
		{Scope, restrictScope},
		{Calls, p.filterCalls},
	}
}

// Enter applies the plan to the calling thread, and executes the program with these
// arguments and this environment. It returns only if something failed.
//
// Preconditions: the goroutine is locked to its thread, and the namespaces of the plan are
// those of a clone (CloneFlags): a process cannot enter a PID namespace itself.
func Enter(p Plan, f FDs, args, env []string) *Error {
	if err := keepProc(f.Proc); err != nil {
		return failure(Parts, err)
	}
	for _, s := range p.steps(f) {
		if p.Want.Has(s.part) {
			if err := s.do(); err != nil {
				return failure(s.part, err)
			}
		}
	}
	return failure(Parts, execute(f.Program, args, env))
}

// Try applies what it can of a plan, and tells what failed: by part, 0 for what works.
// The process is of no use afterwards.
func Try(p Plan, f FDs) (failed [Parts]unix.Errno, err error) {
	if err := keepProc(f.Proc); err != nil {
		return failed, err
	}
	for _, s := range p.steps(f) {
		if !p.Want.Has(s.part) || failed[s.part] != 0 {
			continue
		}
		if err := failure(s.part, s.do()); err != nil {
			failed[s.part] = err.Err
		}
	}
	return failed, nil
}

// keepProc opens the process's own directory of /proc, while there is a /proc: the VMM opens
// its pagemap through it once, and closes it. (A pagemap that is opened before an
// exec is of the memory before.)
func keepProc(to int) error {
	fd, err := unix.Open("/proc/self", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /proc/self: %w", err)
	}
	if fd == to { // the first that was free, where those below are all in use
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
		return err
	}
	defer unix.Close(fd)
	return unix.Dup3(fd, to, 0)
}

func raiseOOMScore() error { return WriteOOMScore(oomScore) }

// WriteOOMScore sets the calling process's oom_score_adj. Lowering it takes CAP_SYS_RESOURCE.
func WriteOOMScore(score int) error {
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set oom_score_adj: %w", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(strconv.Itoa(score))); err != nil {
		return fmt.Errorf("set oom_score_adj: %w", err)
	}
	return nil
}

func (p Plan) limit() error {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_NOFILE: maxFiles, unix.RLIMIT_FSIZE: p.FileSize, unix.RLIMIT_CORE: 0, unix.RLIMIT_MEMLOCK: 0,
	} {
		var old unix.Rlimit
		if err := unix.Prlimit(0, resource, nil, &old); err != nil {
			return err
		}
		most = min(most, old.Max)
		if err := unix.Prlimit(0, resource, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return err
		}
	}
	return nil
}

// filterCalls leaves the exec, and what the program does until it has a VM and filters itself more
// narrowly. All threads that the program makes inherit it from this one.
func (p Plan) filterCalls() error {
	if p.Seccomp == "" || p.Seccomp == seccomp.Off {
		return unix.EINVAL
	}
	return seccomp.Spawn.Install(p.Seccomp, seccomp.ThisThread)
}

// closeOthers has the exec close all descriptors but those below the program's. Until then Go's
// runtime may have some of its own.
func closeOthers(program int) error {
	return unix.CloseRange(uint(program), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}
