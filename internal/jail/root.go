package jail

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// over is a directory that every host has, to mount on. keepProc has been there before.
const over = "/proc"

// emptyRoot exchanges the root for an empty read-only tmpfs, and lets go of all that was
// mounted before. The mount namespace must be the process's own.
func emptyRoot() error {
	if err := mountEmpty(); err != nil {
		return err
	}
	err := unix.PivotRoot(".", ".")
	if errors.Is(err, unix.EINVAL) {
		return coverRoot()
	}
	if err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	// The old root lies over the new one, pivot_root(2): so it is the one that "." unmounts.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	return unix.Chdir("/")
}

// mountEmpty mounts an empty tmpfs, and goes there.
func mountEmpty() error {
	// Nothing of it is to come back to the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("jail", over, "tmpfs", flags, "size=4k,nr_inodes=2,mode=0555"); err != nil {
		return fmt.Errorf("mount an empty root: %w", err)
	}
	return unix.Chdir(over)
}

// coverRoot is for a root that cannot be exchanged since it is the kernel's first one, as
// an initramfs is. It stays below the new one, out of reach: whoever has no capabilities and
// no directory open can go down, never up.
func coverRoot() error {
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the empty root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return unix.Chdir("/")
}
