package jail

import (
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail/stage"
)

// over is a directory that every host has, to mount on. keepProc has been there before.
const over = "/proc"

// emptyRoot exchanges the root for an empty read-only tmpfs, and lets go of all that was
// mounted before. The mount namespace must be the process's own.
func emptyRoot(s *stage.Script) ([]stage.Call, error) {
	here, cover := s.String("."), coverRoot(s)
	pivot := call(unix.SYS_PIVOT_ROOT, here, here)
	pivot.Fine, pivot.Else = unix.EINVAL, 1
	// The old root lies over the new one, pivot_root(2): so it is the one that "." unmounts.
	unmount := call(unix.SYS_UMOUNT2, here, unix.MNT_DETACH)
	unmount.Then = len(cover)
	calls := append(mountEmpty(s), pivot, unmount)
	return append(append(calls, cover...), call(unix.SYS_CHDIR, s.String("/"))), nil
}

// mountEmpty mounts an empty tmpfs, and goes there.
func mountEmpty(s *stage.Script) []stage.Call {
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	dir, none := s.String(over), s.String("")
	return []stage.Call{
		// Nothing of it is to come back to the host.
		call(unix.SYS_MOUNT, none, s.String("/"), none, unix.MS_REC|unix.MS_PRIVATE, 0),
		call(unix.SYS_MOUNT, s.String("jail"), dir, s.String("tmpfs"), flags, s.String("size=4k,nr_inodes=2,mode=0555")),
		call(unix.SYS_CHDIR, dir),
	}
}

// coverRoot is for a root that cannot be exchanged since it is the kernel's first one, as
// an initramfs is. It stays below the new one, out of reach: whoever has no capabilities and
// no directory open can go down, never up.
func coverRoot(s *stage.Script) []stage.Call {
	here := s.String(".")
	return []stage.Call{
		call(unix.SYS_MOUNT, here, s.String("/"), s.String(""), unix.MS_MOVE, 0),
		call(unix.SYS_CHROOT, here),
	}
}
