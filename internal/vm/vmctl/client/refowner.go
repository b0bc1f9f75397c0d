package client

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/sys/hostproc"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// ErrNotOurs means that a reference names a process that is not the VMM of its
// directory: the journal that it was read from is not to be believed.
var ErrNotOurs = errors.New("it is not the VMM of that directory")

// Check looks at the process that a reference names before it is ended or adopted:
// it must be this user's or one of the users of the jail, run the VMM binary, and have that directory's console log
// open where a VMM has it. One that has ended, or whose pid has another owner since, is no error.
func (r Ref) Check(binary string) error {
	for end := time.Now().Add(killWait); ; time.Sleep(5 * time.Millisecond) {
		err := r.check(binary)
		if !hostproc.Runs(r.PID, r.StartTime) {
			return nil // whatever was seen belongs to nobody that would be ended
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, fs.ErrNotExist) && time.Now().Before(end): // it is being taken apart: its files go first
		default:
			return fmt.Errorf("process %d: %w: %w", r.PID, ErrNotOurs, err)
		}
	}
}

func (r Ref) check(binary string) error {
	proc := fmt.Sprintf("/proc/%d", r.PID)
	if uid, err := userOf(proc); err != nil || !isOurs(uid) && !inOurNamespace(proc) {
		return fmt.Errorf("it belongs to user %d (%v)", uid, err)
	}
	exe, err := os.Readlink(proc + "/exe")
	if err != nil {
		return err
	}
	if !isProgram(exe, binary) {
		return fmt.Errorf("it runs %s", exe)
	}
	open, err := os.Stat(fmt.Sprintf("%s/fd/%d", proc, wire.FDConsole)) // follows to the file itself
	if errors.Is(err, fs.ErrPermission) {
		open, err = statFD(r.PID, wire.FDConsole)
	}
	if err != nil {
		return err
	}
	log, err := os.Lstat(filepath.Join(r.Dir, ConsoleLog))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the directory has no %s", ConsoleLog)
	}
	if err != nil {
		return err
	}
	if !log.Mode().IsRegular() || !os.SameFile(open, log) {
		return fmt.Errorf("it does not write the directory's %s", ConsoleLog)
	}
	return nil
}

// isOurs tells whether a VMM of ours may run as that user.
func isOurs(uid int) bool {
	return uid == os.Geteuid() || os.Geteuid() == 0 && jail.IsUser(uint32(uid))
}

// inOurNamespace tells whether a process is in a user namespace that this user has made: there a jail's
// users are those that the host has mapped for it, who are others to the host.
func inOurNamespace(proc string) bool {
	f, err := os.Open(proc + "/ns/user")
	if err != nil {
		return false
	}
	defer f.Close()
	owner, err := unix.IoctlGetUint32(int(f.Fd()), unix.NS_GET_OWNER_UID)
	return err == nil && os.Geteuid() != 0 && int(owner) == os.Geteuid()
}

// statFD looks at a file that a process has open. The directory of descriptors is its user's alone; who
// owns its namespace gets one all the same.
func statFD(pid, fd int) (fs.FileInfo, error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(process)
	got, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	f := os.NewFile(uintptr(got), "console")
	defer f.Close()
	return f.Stat()
}

// isProgram compares a process's program with the VMM. After an upgrade it may be gone,
// or be installed elsewhere.
func isProgram(exe, binary string) bool {
	exe = strings.TrimSuffix(exe, " (deleted)") // proc_pid_exe(5)
	if real, err := filepath.EvalSymlinks(binary); err == nil {
		binary = real
	}
	return exe == binary || filepath.Base(exe) == filepath.Base(binary)
}

// userOf is a process's effective user: of /proc/PID itself the owner may be root.
func userOf(proc string) (int, error) {
	b, err := os.ReadFile(proc + "/status")
	if err != nil {
		return -1, err
	}
	for line := range bytes.Lines(b) {
		if rest, is := bytes.CutPrefix(line, []byte("Uid:")); is {
			if f := bytes.Fields(rest); len(f) == 4 { // real, effective, saved, file system
				return strconv.Atoi(string(f[1]))
			}
		}
	}
	return -1, errors.New("no user in its status")
}
