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

// ErrNotOurs is returned if a reference names a process other than the VMM of its directory. The
// journal with the reference is then not trustworthy.
var ErrNotOurs = errors.New("it is not the VMM of that directory")

// Check verifies the process of a reference before it is ended or adopted. The process must belong
// to this user or one of the jail's users, run the VMM binary, and have the directory's console log
// open at the VMM's descriptor. Check returns nil if the process has ended, or if its pid has
// another owner since.
func (r Ref) Check(binary string) error {
	for end := time.Now().Add(killWait); ; time.Sleep(5 * time.Millisecond) {
		err := r.check(binary)
		if !hostproc.Runs(r.PID, r.StartTime) {
			return nil // the process has ended, so the result does not matter
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, fs.ErrNotExist) && time.Now().Before(end): // the process is exiting: its files go first
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

// isOurs reports whether one of our VMMs may run as user uid.
func isOurs(uid int) bool {
	return uid == os.Geteuid() || os.Geteuid() == 0 && jail.IsUser(uint32(uid))
}

// inOurNamespace reports whether a process is in a user namespace created by this user. Inside it a
// jail's users are the ids mapped by the host, which are other users to the host.
func inOurNamespace(proc string) bool {
	f, err := os.Open(proc + "/ns/user")
	if err != nil {
		return false
	}
	defer f.Close()
	owner, err := unix.IoctlGetUint32(int(f.Fd()), unix.NS_GET_OWNER_UID)
	return err == nil && os.Geteuid() != 0 && int(owner) == os.Geteuid()
}

// statFD returns a process's open file fd. Only the process's user can read its descriptor
// directory, but the owner of its user namespace can get the descriptor by this call.
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

// isProgram reports whether a process's program is the VMM. After an upgrade the program may be
// deleted, or installed elsewhere.
func isProgram(exe, binary string) bool {
	exe = strings.TrimSuffix(exe, " (deleted)") // proc_pid_exe(5)
	if real, err := filepath.EvalSymlinks(binary); err == nil {
		binary = real
	}
	return exe == binary || filepath.Base(exe) == filepath.Base(binary)
}

// userOf returns a process's effective user. The owner of /proc/PID itself may be root instead.
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
