package landlock

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ruleset is what is taken away, but for what rules leave
// (struct landlock_ruleset_attr of include/uapi/linux/landlock.h).
type Ruleset struct{ Files, Net, Scope uint64 }

// beneath is struct landlock_path_beneath_attr, which is packed: 12 bytes.
type beneath struct {
	access [2]uint32 // a uint64
	parent int32
}

// Version is that of the kernel's interface.
func Version() (int, error) {
	// SAFETY: with this flag the call takes no structure.
	v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("landlock: %w", errno)
	}
	return int(v), nil
}

// Threads says who is restricted.
type Threads bool

const (
	ThisThread Threads = false
	// AllThreads needs a program without cgo, and no_new_privs in all of them.
	AllThreads Threads = true
)

// Restrict takes from the calling thread, or from all, what the ruleset handles, but for what rules
// leave, which are made with Allow.
func (r Ruleset) Restrict(who Threads, rules func(ruleset int) error) error {
	size := unsafe.Sizeof(r) // older kernels take a longer one whose end is zero
	// SAFETY: r is the structure of that size, which the kernel reads during the call.
	n, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&r)), size, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: make ruleset: %w", errno)
	}
	fd := int(n)
	defer unix.Close(fd)
	if rules != nil {
		if err := rules(fd); err != nil {
			return err
		}
	}
	if who == AllThreads {
		_, _, errno = syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(fd), 0, 0)
	} else {
		_, _, errno = unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(fd), 0, 0)
	}
	if errno != 0 {
		return fmt.Errorf("landlock: restrict: %w", errno)
	}
	return nil
}

// Allow adds rights for a file, or for all below a directory.
func Allow(ruleset, parent int, rights uint64) error {
	b := beneath{access: [2]uint32{uint32(rights), uint32(rights >> 32)}, parent: int32(parent)}
	// SAFETY: b has the structure's 12 bytes (little endian, as both platforms are), which the kernel
	// reads during the call.
	_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&b)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: add rule: %w", errno)
	}
	return nil
}
