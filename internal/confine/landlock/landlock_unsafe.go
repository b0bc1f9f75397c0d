package landlock

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ruleset lists the rights to deny, except where rules allow them (struct landlock_ruleset_attr of
// include/uapi/linux/landlock.h).
type Ruleset struct{ Files, Net, Scope uint64 }

// Version returns the version of the kernel's interface.
func Version() (int, error) {
	// SAFETY: with this flag the call takes no structure.
	v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("landlock: %w", errno)
	}
	return int(v), nil
}

// Bytes returns the structure for landlock_create_ruleset(2). Older kernels accept a longer structure than their
// own if the rest is zero.
func (r Ruleset) Bytes() (b []byte) {
	for _, rights := range []uint64{r.Files, r.Net, r.Scope} {
		b = binary.LittleEndian.AppendUint64(b, rights)
	}
	return b
}

// Rule returns the structure for landlock_add_rule(2), which allows rights for a file, or for everything below a
// directory (struct landlock_path_beneath_attr, which is packed: 12 bytes).
func Rule(parent int, rights uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, rights)
	return binary.LittleEndian.AppendUint32(b, uint32(parent)) //nolint:gosec // a descriptor
}

// Restrict denies the ruleset's rights to all threads, except for the rights that rules allow with Allow. It
// needs a program without cgo, and no_new_privs in all threads.
func (r Ruleset) Restrict(rules func(ruleset int) error) error {
	attr := r.Bytes()
	// SAFETY: attr is the structure with this size, which the kernel reads during the call.
	n, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr[0])), uintptr(len(attr)), 0)
	if errno != 0 {
		return fmt.Errorf("landlock: make ruleset: %w", errno)
	}
	fd := int(n)
	defer unix.Close(fd)
	if err := rules(fd); err != nil {
		return err
	}
	if _, _, errno = syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(fd), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: restrict: %w", errno)
	}
	return nil
}

// Allow allows rights for a file, or for everything below a directory.
func Allow(ruleset, parent int, rights uint64) error {
	rule := Rule(parent, rights)
	// SAFETY: rule is the structure, which the kernel reads during the call.
	_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule[0])), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: add rule: %w", errno)
	}
	return nil
}
