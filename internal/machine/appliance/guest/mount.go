package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type mountPoint struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

var systemMounts = []mountPoint{
	{"proc", "/proc", "proc", quiet, ""},
	{"sysfs", "/sys", "sysfs", quiet, ""},
	{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
	{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0620,ptmxmode=0666"},
	{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777,size=100%"},
	{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
	{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777,size=100%"},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", quiet, ""},
	{"tracefs", "/sys/kernel/tracing", "tracefs", quiet, ""},
}

func (a *appliance) mountSystem() error {
	var errs []error
	for _, m := range systemMounts {
		if err := m.mount(); err != nil {
			errs = append(errs, err)
		}
	}
	// Redirected stdio needs these names.
	for name, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, name); err != nil && !errors.Is(err, os.ErrExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (m mountPoint) mount() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data)
	if err != nil && !errors.Is(err, unix.EBUSY) { // the kernel may have mounted devtmpfs
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	return nil
}

// dataDevice is the appliance's only virtio-blk device.
const dataDevice = "/dev/vda"

// mountData mounts the data disk. The host has formatted it.
func (a *appliance) mountData() error {
	if a.cfg.DataMount == "" {
		return nil
	}
	if err := waitForPath(dataDevice, 5*time.Second); err != nil {
		return err
	}
	m := mountPoint{dataDevice, a.cfg.DataMount, "ext4", unix.MS_NOATIME, "discard"}
	return m.mount()
}

// waitForPath waits for a device node, which appears some time after its driver.
func waitForPath(path string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no %s after %s", path, limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// unmountAll unmounts everything at or below the data disk's mount point.
func (a *appliance) unmountAll() {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		a.logf("read mounts: %v", err)
		return
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i := len(lines) - 1; i >= 0; i-- { // newest first: a mount covers older ones
		f := strings.Fields(lines[i])
		if len(f) < 2 || a.cfg.DataMount == "" || !within(f[1], a.cfg.DataMount) {
			continue
		}
		if err := unix.Unmount(f[1], 0); err != nil {
			a.logf("unmount %s: %v, remounting read-only", f[1], err)
			if err := unix.Mount("", f[1], "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				a.logf("remount %s: %v", f[1], err)
			}
		}
	}
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
