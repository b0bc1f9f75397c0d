package asuser

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/account"
)

// become changes only the calling thread. The real and saved ids stay root's: the kernel does not
// use them for files, and they prevent the user's processes from signalling or tracing this thread.
// The kernel checks the effective ids for files, and only them for /proc/sys.
func become(u account.User) error {
	if err := setGroups(u.Groups); err != nil {
		return fmt.Errorf("take the groups of user '%s': %w", u.Name, err)
	}
	const keep = ^uintptr(0)
	// SAFETY: these calls take numbers and no pointers. Raw, since the wrappers of
	// the standard library would change every thread.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(uint32(u.GID)), keep); errno != 0 {
		return fmt.Errorf("take the group of user '%s': %w", u.Name, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uint32(u.UID)), keep); errno != 0 {
		return fmt.Errorf("take the id of user '%s': %w", u.Name, errno)
	}
	// The effective set is empty now. Without the permitted set it stays empty.
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities for user '%s': %w", u.Name, err)
	}
	return nil
}

// setGroups changes the calling thread's groups. syscall.Setgroups would change the groups of all
// threads.
func setGroups(ids []uint32) error {
	var list *uint32
	if len(ids) > 0 {
		list = &ids[0]
	}
	// SAFETY: list points to len(ids) group ids, or is nil with a length of 0; the
	// kernel only reads them, during the call.
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(ids)), uintptr(unsafe.Pointer(list)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
