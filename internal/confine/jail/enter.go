package jail

import (
	"encoding/binary"
	"math"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail/stage"
	"github.com/forkd/forkd/internal/confine/landlock"
	"github.com/forkd/forkd/internal/confine/seccomp"
)

// FDs holds the descriptors of a process entering a jail.
type FDs struct {
	Proc int // receives its /proc directory; the VMM keeps this descriptor
	// Program is the VMM's executable, opened as O_PATH. Report is next; the process reports failures on it. The
	// exec closes these two and all higher descriptors. Lower ones stay open.
	Program, Report int
}

// Failures holds the error numbers of a process that could not execute its program, by part. The one at Parts is
// for other steps. The process writes them to Report; it writes no bytes if the program is executed.
type Failures [Parts + 1]uint8

// First returns the first failure, or nil.
func (f Failures) First() *Error {
	for p, errno := range f {
		if errno != 0 {
			return &Error{Part: Part(p), Err: unix.Errno(errno)}
		}
	}
	return nil
}

// step applies one restriction with system calls. add returns an error if that is impossible.
type step struct {
	part Part
	add  func(*stage.Script) ([]stage.Call, error)
}

// steps returns the steps in an order in which each one still works: file systems before capabilities,
// capabilities before no_new_privs, which Landlock needs. The system call filter comes last, because it denies
// the calls of the other steps.
func (p Plan) steps(f FDs) []step {
	return []step{
		{OOM, raiseOOMScore},
		{Root, emptyRoot},
		{Limits, p.limit},
		{Descriptors, func(*stage.Script) ([]stage.Call, error) { return closeOthers(f.Program), nil }},
		{Caps, dropBounding},
		{User, p.becomeUser},
		{Caps, dropCapabilities},
		{NoNewPrivs, noNewPrivs},
		{Files, func(s *stage.Script) ([]stage.Call, error) { return restrictFiles(s, f.Program, f.Proc) }},
		{TCP, restrictTCP},
		{Scope, restrictScope},
		{Calls, p.filterCalls},
	}
}

// Enter returns the system calls for a process that applies the plan to itself and executes the program with
// these arguments and this environment. If a call fails, the process reports it and exits.
//
// Preconditions: the process was cloned with the plan's namespaces (CloneFlags), because a process cannot enter a
// PID namespace itself.
func Enter(p Plan, f FDs, args, env []string) (*stage.Script, *Error) {
	s := &stage.Script{}
	addGroup(s, Parts, keepProc(s, f.Proc))
	for _, step := range p.steps(f) {
		if !p.Want.Has(step.part) {
			continue
		}
		calls, err := step.add(s)
		if err != nil {
			return nil, failure(step.part, err)
		}
		addGroup(s, step.part, calls)
	}
	addGroup(s, Parts, p.slacken())
	addGroup(s, Parts, execute(s, f.Program, args, env))
	s.Until(0)
	report(s, f, 1)
	return s, nil
}

// Try returns the calls for a process that applies as much of a plan as it can, reports failures, and exits. The
// returned failures are parts that could not even be tried.
func Try(p Plan, f FDs) (*stage.Script, Failures) {
	var failed Failures
	s := &stage.Script{}
	addGroup(s, Parts, keepProc(s, f.Proc))
	for _, step := range p.steps(f) {
		if !p.Want.Has(step.part) || failed[step.part] != 0 {
			continue
		}
		calls, err := step.add(s)
		if err := failure(step.part, err); err != nil {
			failed[step.part] = uint8(min(err.Err, math.MaxUint8))
			continue
		}
		addGroup(s, step.part, calls)
	}
	report(s, f, 0)
	return s, failed
}

// Nothing returns the calls for a process that exits immediately, which shows that its namespaces were possible.
func Nothing() *stage.Script {
	s := &stage.Script{}
	s.Add(exit(0))
	return s
}

func addGroup(s *stage.Script, p Part, calls []stage.Call) {
	for i := range calls {
		calls[i].Slot = int(p)
	}
	s.Add(calls...)
}

// report adds the calls to write the failures and exit.
func report(s *stage.Script, f FDs, status uint64) {
	s.Add(call(unix.SYS_WRITE, uint64(f.Report), stage.Errors(), uint64(len(Failures{}))))
	s.Add(exit(status))
}

func exit(status uint64) stage.Call { return call(unix.SYS_EXIT_GROUP, status) }

func call(number uintptr, args ...uint64) stage.Call { return stage.Call{Number: number, Args: args} }

// cwd is AT_FDCWD.
const cwd = math.MaxUint64 - 99

// keepProc opens the process's own directory of /proc while /proc is still mounted. The VMM opens its pagemap
// through it once, and then closes it. (A pagemap opened before an exec would refer to the old memory.)
func keepProc(s *stage.Script, to int) []stage.Call {
	open := call(unix.SYS_OPENAT, cwd, s.String("/proc/self"), unix.O_PATH|unix.O_DIRECTORY)
	open.Keep = true
	dup := stage.Call{Number: unix.SYS_DUP3, Args: []uint64{0, uint64(to), 0}, Kept: true,
		Fine: unix.EINVAL, Else: 1} // the first free descriptor was already the right one
	return []stage.Call{open, dup, {Number: unix.SYS_CLOSE, Kept: true}}
}

func raiseOOMScore(s *stage.Script) ([]stage.Call, error) {
	open := call(unix.SYS_OPENAT, cwd, s.String("/proc/self/oom_score_adj"), unix.O_WRONLY|unix.O_CLOEXEC)
	open.Keep = true
	score := strconv.Itoa(oomScore)
	write := call(unix.SYS_WRITE, 0, s.String(score), uint64(len(score)))
	write.Kept = true
	return []stage.Call{open, write, {Number: unix.SYS_CLOSE, Kept: true}}, nil
}

func (p Plan) limit(s *stage.Script) (calls []stage.Call, err error) {
	for _, l := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_NOFILE, maxFiles}, {unix.RLIMIT_FSIZE, p.FileSize}, {unix.RLIMIT_CORE, 0}, {unix.RLIMIT_MEMLOCK, 0},
	} {
		var old unix.Rlimit // inherited by the process
		if err := unix.Getrlimit(l.resource, &old); err != nil {
			return nil, err
		}
		most := min(l.most, old.Max)
		pair := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, most), most)
		calls = append(calls, call(unix.SYS_PRLIMIT64, 0, uint64(l.resource), s.Bytes(pair), 0))
	}
	return calls, nil
}

// filterCalls installs a filter that allows the exec and all calls of the program until it has a VM and installs
// a stricter filter. All threads of the program inherit it.
func (p Plan) filterCalls(s *stage.Script) ([]stage.Call, error) {
	if p.Seccomp == "" || p.Seccomp == seccomp.Off {
		return nil, unix.EINVAL
	}
	program, err := seccomp.Spawn.Program(p.Seccomp)
	if err != nil {
		return nil, err
	}
	// struct sock_fprog: number of instructions, address
	prog := binary.LittleEndian.AppendUint64(nil, uint64(len(program)/seccomp.InstructionBytes))
	prog = binary.LittleEndian.AppendUint64(prog, s.Bytes(program))
	return []stage.Call{
		call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1),
		call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, s.Bytes(prog)),
	}, nil
}

// slacken sets the timer slack. It only improves the VMM's speed, so an error is ignored.
func (p Plan) slacken() []stage.Call {
	if p.TimerSlack == 0 {
		return nil
	}
	slack := call(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uint64(p.TimerSlack.Nanoseconds()))
	slack.Fine = unix.EINVAL
	return []stage.Call{slack}
}

// closeOthers makes the exec close all descriptors except the ones below the program's.
func closeOthers(program int) []stage.Call {
	return []stage.Call{call(unix.SYS_CLOSE_RANGE, uint64(program), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)}
}

// restrictFiles lets the process execute its program and read below its own directory of /proc. It denies access
// to all other files, even through names or directory descriptors that the process finds.
func restrictFiles(s *stage.Script, program, proc int) ([]stage.Call, error) {
	version, err := landlock.Version()
	if err != nil {
		return nil, err
	}
	return restrict(s, landlock.Ruleset{Files: landlock.AllFiles(version)},
		landlock.Rule(program, landlock.Execute), landlock.Rule(proc, landlock.Read)), nil
}

func restrictTCP(s *stage.Script) ([]stage.Call, error) {
	return restrictSince(s, landlock.TCPSince,
		landlock.Ruleset{Net: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP})
}

func restrictScope(s *stage.Script) ([]stage.Call, error) {
	return restrictSince(s, landlock.ScopeSince,
		landlock.Ruleset{Scope: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL})
}

func restrictSince(s *stage.Script, since int, r landlock.Ruleset) ([]stage.Call, error) {
	version, err := landlock.Version()
	if err == nil && version < since {
		err = unix.EOPNOTSUPP
	}
	if err != nil {
		return nil, err
	}
	return restrict(s, r), nil
}

// restrict denies the rights in the ruleset, except for the rights allowed by rules.
func restrict(s *stage.Script, r landlock.Ruleset, rules ...[]byte) []stage.Call {
	attr := r.Bytes()
	create := call(unix.SYS_LANDLOCK_CREATE_RULESET, s.Bytes(attr), uint64(len(attr)), 0)
	create.Keep = true
	calls := []stage.Call{create}
	add := func(number uintptr, args ...uint64) {
		calls = append(calls, stage.Call{Number: number, Args: append([]uint64{0}, args...), Kept: true})
	}
	for _, rule := range rules {
		add(unix.SYS_LANDLOCK_ADD_RULE, unix.LANDLOCK_RULE_PATH_BENEATH, s.Bytes(rule), 0)
	}
	add(unix.SYS_LANDLOCK_RESTRICT_SELF, 0)
	add(unix.SYS_CLOSE)
	return calls
}

// execute replaces the process by the program at fd.
func execute(s *stage.Script, fd int, args, env []string) []stage.Call {
	path, argv, envp := s.String(""), s.Strings(args), s.Strings(env)
	return []stage.Call{call(unix.SYS_EXECVEAT, uint64(fd), path, argv, envp, unix.AT_EMPTY_PATH)}
}
