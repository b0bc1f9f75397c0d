package server

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/failpoint"
	"github.com/forkd/forkd/internal/jail"
	"github.com/forkd/forkd/internal/seccomp"
	"github.com/forkd/forkd/internal/spawner/wire"
	vmwire "github.com/forkd/forkd/internal/vmctl/wire"
)

// The first argument of processes that Serve starts.
const (
	argInit = "init" // becomes a VMM
	argTry  = "try"  // tells which parts of a jail can be applied
	argNone = "none" // does nothing: its namespaces were possible
)

// initEnv is for their short lives.
var initEnv = []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=disablethp=1"}

// reportSize is that of what they report: a part and an error number.
const reportSize = 5

func encodeReport(e *jail.Error) (b [reportSize]byte) {
	b[0] = byte(e.Part)
	binary.LittleEndian.PutUint32(b[1:], uint32(e.Err))
	return b
}

func decodeReport(b [reportSize]byte) error {
	return &jail.Error{Part: jail.Part(b[0]), Err: unix.Errno(binary.LittleEndian.Uint32(b[1:]))}
}

// IsInit tells whether these are the arguments of a process that Serve has started.
func IsInit(args []string) bool {
	return len(args) > 1 && (args[1] == argInit || args[1] == argTry || args[1] == argNone)
}

// Init is that process. It does not return unless it failed.
func Init(args []string) error {
	runtime.LockOSThread()
	switch {
	case args[1] == argNone:
		os.Exit(0)
	case args[1] == argTry && len(args) == 4:
		return try(args[2], args[3])
	case args[1] == argInit && len(args) == 4:
		return become(args[2], args[3])
	}
	return errors.New("these are no arguments for it")
}

// become enters the jail, and is a VMM.
func become(message, user string) error {
	b, err := hex.DecodeString(message)
	if err != nil {
		return err
	}
	m, err := wire.Decode(b)
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(user, 10, 32)
	if err != nil {
		return err
	}
	start := vmwire.Start{
		Shape: m.Shape, Prewarm: m.Prewarm, Proc: true, Userfaultfd: m.Files&wire.Userfaultfd != 0, Seccomp: m.Seccomp,
	}
	args, err := start.Args()
	if err != nil {
		return err
	}
	env := vmwire.Environment(m.Shape)
	if m.Files&wire.Failpoints != 0 {
		env = append(env, failpoint.Environ(vmwire.FDFailpoints)...)
	}
	// Without it a VMM is only slower.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(vmwire.TimerSlack), 0, 0, 0)
	failed := jail.Enter(jail.Plan{Want: m.Want, UID: uint32(uid), FileSize: m.FileSize, Seccomp: m.Seccomp},
		jail.FDs{Proc: vmwire.FDProc, Program: fdProgram}, args, env)
	report := encodeReport(failed)
	if _, err := unix.Write(fdReport, report[:]); err != nil {
		return errors.Join(failed, err)
	}
	os.Exit(1)
	return nil
}

// try applies what it can of a jail, and reports an error number for each part.
func try(want, user string) error {
	set, err := strconv.ParseUint(want, 10, 32)
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(user, 10, 32)
	if err != nil {
		return err
	}
	failed, err := jail.Try(jail.Plan{Want: jail.Set(set), UID: uint32(uid), FileSize: 1 << 40, Seccomp: seccomp.On},
		jail.FDs{Proc: vmwire.FDProc, Program: fdProgram})
	if err != nil {
		return err
	}
	var b [jail.Parts]byte
	for p, errno := range failed {
		b[p] = byte(min(errno, 255))
	}
	if _, err := unix.Write(fdReport, b[:]); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	os.Exit(0)
	return nil
}
