package jail

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These change the calling thread only, unlike package syscall's: it is the one that executes.

// becomeUser takes a user of the range, without groups. In a user namespace there is nothing
// to do: it has one user, and no right to change groups.
func (p Plan) becomeUser() error {
	if p.UID == 0 {
		return nil
	}
	id := uintptr(p.UID)
	// SAFETY: no argument is a pointer, but the list of groups, which is empty.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	return nil
}

// secureBits: an exec by uid 0, which there is in a user namespace, gives no capabilities;
// locked. (SECBIT_NOROOT, SECBIT_NO_SETUID_FIXUP stays off, SECBIT_NO_CAP_AMBIENT_RAISE.)
const secureBits = 1<<0 | 1<<1 | 1<<6 | 1<<7

// dropBounding makes sure that no exec gives a capability. Without CAP_SETPCAP it fails.
func dropBounding() error {
	for c := uintptr(0); c < 64; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL {
			break // that was the last that the kernel knows
		}
		if err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
		return fmt.Errorf("set securebits: %w", err)
	}
	return nil
}

func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	// SAFETY: the kernel reads both during the call only; version 3 has two parts of data.
	_, _, errno := unix.RawSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

func noNewPrivs() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

// execute replaces the process by the program that fd is.
func execute(fd int, args, env []string) error {
	argv, err := syscall.SlicePtrFromStrings(args)
	if err != nil {
		return err
	}
	envv, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return err
	}
	empty := [1]byte{}
	// SAFETY: the kernel copies the strings before it replaces the process; if it does not, they
	// still live, as both lists are used by this call.
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(&empty)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envv[0])), unix.AT_EMPTY_PATH, 0)
	return fmt.Errorf("execute: %w", errno)
}
