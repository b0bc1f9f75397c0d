package guestinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
	optional               bool // an image or kernel works without it
}

// early mounts are needed to find the root. They move to the new root.
var early = []mount{
	{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "", false},
	{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "", false},
	{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755", false},
	{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755", false},
}

// late mounts are expected by programs.
var late = []mount{
	{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666", false},
	{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777", false},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "", true},
}

// hiddenDir is a directory for root only.
const hiddenDir = "/run/forkd/hidden"

// mountWholeProc mounts proc once more, where programs do not look. A clone's own boot id is mounted
// over a file of /proc. The kernel lets a user namespace mount proc only if another mount of it has
// nothing mounted over it (mount_too_revealing), and programs such as bubblewrap and rootless
// containers need that.
func mountWholeProc() error {
	// Its parent is for every user.
	if err := os.MkdirAll(filepath.Dir(hiddenDir), 0o755); err != nil {
		return fmt.Errorf("make %s: %w", hiddenDir, err)
	}
	if err := os.Mkdir(hiddenDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make %s: %w", hiddenDir, err)
	}
	return mount{"proc", hiddenDir + "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "", false}.do()
}

func mountAll(all []mount) error {
	for _, m := range all {
		if err := m.do(); err != nil && !m.optional {
			return err
		}
	}
	return nil
}

func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", m.target, err)
	}
	err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data)
	if err != nil && !errors.Is(err, unix.EBUSY) { // EBUSY: already mounted by the kernel
		return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
	}
	return nil
}

// links are usually made by a device manager.
var links = [][2]string{
	{"/proc/self/fd", "/dev/fd"},
	{"/proc/self/fd/0", "/dev/stdin"},
	{"/proc/self/fd/1", "/dev/stdout"},
	{"/proc/self/fd/2", "/dev/stderr"},
	{"pts/ptmx", "/dev/ptmx"},
}

func makeLinks() error {
	for _, l := range links {
		if l[1] == "/dev/ptmx" {
			// The kernel's own node does not open terminals of this devpts mount.
			_ = os.Remove(l[1])
		}
		if err := os.Symlink(l[0], l[1]); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("link %s: %w", l[1], err)
		}
	}
	return nil
}
