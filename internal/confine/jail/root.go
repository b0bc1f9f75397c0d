package jail

import (
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail/stage"
)

// over is a directory that exists on every host, to mount on. keepProc has already used it.
const over = "/proc"

// emptyRoot replaces the root by an empty read-only tmpfs and detaches all previous mounts. The process must have
// its own mount namespace.
func emptyRoot(s *stage.Script) ([]stage.Call, error) {
	here, cover := s.String("."), coverRoot(s)
	pivot := call(unix.SYS_PIVOT_ROOT, here, here)
	pivot.Fine, pivot.Else = unix.EINVAL, 1
	// The old root is mounted over the new one, pivot_root(2), so "." unmounts the old one.
	unmount := call(unix.SYS_UMOUNT2, here, unix.MNT_DETACH)
	unmount.Then = len(cover)
	calls := append(mountEmpty(s), pivot, unmount)
	return append(append(calls, cover...), call(unix.SYS_CHDIR, s.String("/"))), nil
}

// mountEmpty mounts an empty tmpfs and changes into it.
func mountEmpty(s *stage.Script) []stage.Call {
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	dir, none := s.String(over), s.String("")
	return []stage.Call{
		// Keep its mounts from propagating to the host.
		call(unix.SYS_MOUNT, none, s.String("/"), none, unix.MS_REC|unix.MS_PRIVATE, 0),
		call(unix.SYS_MOUNT, s.String("jail"), dir, s.String("tmpfs"), flags, s.String("size=4k,nr_inodes=2,mode=0555")),
		call(unix.SYS_CHDIR, dir),
	}
}

// coverRoot handles a root that cannot be pivoted because it is the kernel's first one, such as an initramfs. The
// old root stays below the new one, out of reach: a process without capabilities and open directories can only go
// down, never up.
func coverRoot(s *stage.Script) []stage.Call {
	here := s.String(".")
	return []stage.Call{
		call(unix.SYS_MOUNT, here, s.String("/"), s.String(""), unix.MS_MOVE, 0),
		call(unix.SYS_CHROOT, here),
	}
}
