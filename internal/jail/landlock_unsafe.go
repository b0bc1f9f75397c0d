package jail

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ruleset is struct landlock_ruleset_attr of include/uapi/linux/landlock.h.
type ruleset struct{ files, net, scope uint64 }

// beneath is struct landlock_path_beneath_attr, which is packed: 12 bytes.
type beneath struct {
	access [2]uint32 // a uint64
	parent int32
}

// fileRights are those of files by the version of Landlock's interface that brought them.
var fileRights = []struct {
	since  int
	rights uint64
}{
	{1, unix.LANDLOCK_ACCESS_FS_EXECUTE<<13 - unix.LANDLOCK_ACCESS_FS_EXECUTE}, // the first 13
	{2, unix.LANDLOCK_ACCESS_FS_REFER},
	{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
	{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
}

// executes: the kernel opens a program for reading, too.
const executes = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE

// restrictFiles lets the process execute its program and read below its own directory of /proc;
// all other files are closed to it, whatever names or descriptors of directories it finds.
func restrictFiles(program, proc int) error {
	version, err := landlockVersion()
	if err != nil {
		return err
	}
	var r ruleset
	for _, f := range fileRights {
		if version >= f.since {
			r.files |= f.rights
		}
	}
	return r.restrict(func(fd int) error {
		if err := allow(fd, program, executes); err != nil {
			return err
		}
		return allow(fd, proc, unix.LANDLOCK_ACCESS_FS_READ_FILE)
	})
}

func restrictTCP() error {
	if version, err := landlockVersion(); err != nil || version < 4 {
		return orUnsupported(err)
	}
	r := ruleset{net: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP}
	return r.restrict(nil)
}

func restrictScope() error {
	if version, err := landlockVersion(); err != nil || version < 6 {
		return orUnsupported(err)
	}
	r := ruleset{scope: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL}
	return r.restrict(nil)
}

func orUnsupported(err error) error {
	if err == nil {
		err = unix.EOPNOTSUPP
	}
	return err
}

func landlockVersion() (int, error) {
	// SAFETY: with this flag the call takes no structure.
	v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("landlock: %w", errno)
	}
	return int(v), nil
}

// restrict takes from the calling thread what the ruleset handles, but for what rules allow.
func (r *ruleset) restrict(rules func(fd int) error) error {
	size := unsafe.Sizeof(*r) // older kernels take a longer one whose end is zero
	// SAFETY: r is the structure of that size, which the kernel reads during the call.
	n, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(r)), size, 0)
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
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(fd), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: restrict: %w", errno)
	}
	return nil
}

// allow adds rights for a file, or for all below a directory.
func allow(ruleset, parent int, rights uint64) error {
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
