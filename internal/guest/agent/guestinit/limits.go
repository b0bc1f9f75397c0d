package guestinit

import (
	"cmp"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/defaults"
)

// Default limits of programs. The kernel's for open files (1024 and 4096) are too low for development
// servers and for imports of large Python packages. It derives those of file watchers from the guest's
// memory.
const (
	openFiles    = 1 << 16 // soft
	maxOpenFiles = 1 << 20 // hard; the kernel's fs.nr_open

	watches   = 1 << 19
	instances = 1 << 10
)

// sysctls returns the files and values of the limits of file watchers.
func sysctls(l defaults.Limits) map[string]uint64 {
	return map[string]uint64{
		"/proc/sys/fs/inotify/max_user_watches":   cmp.Or(l.InotifyWatches, watches),
		"/proc/sys/fs/inotify/max_user_instances": cmp.Or(l.InotifyInstances, instances),
	}
}

// softOpenFiles returns the soft limit of open files.
func softOpenFiles(l defaults.Limits) uint64 {
	return min(cmp.Or(l.OpenFiles, openFiles), maxOpenFiles)
}

// userDevices are device files for every user, as udev makes them; the kernel creates them with
// 0600. Opening these files grants no rights by itself: mounts and interfaces check capabilities.
var userDevices = []string{"/dev/fuse", "/dev/net/tun"}

// raiseLimits sets limits and modes as distributions do, or as the image says. Programs inherit the
// limit of open files. Missing sysctls and devices are skipped.
func raiseLimits(l defaults.Limits) error {
	for name, value := range sysctls(l) {
		_ = os.WriteFile(name, strconv.AppendUint(nil, value, 10), 0)
	}
	for _, name := range userDevices {
		_ = os.Chmod(name, 0o666) // #nosec G302 -- see userDevices
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: softOpenFiles(l), Max: maxOpenFiles}); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}
