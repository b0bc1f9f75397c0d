package guestinit

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Initial limits of open files for programs. The kernel's defaults (1024 and 4096) are too low for
// development servers and for imports of large Python packages.
const (
	openFiles    = 1 << 16 // soft
	maxOpenFiles = 1 << 20 // hard; the kernel's fs.nr_open
)

// sysctls raise limits for file watchers. The kernel derives its defaults from the guest's memory.
var sysctls = map[string]string{
	"/proc/sys/fs/inotify/max_user_watches":   "524288",
	"/proc/sys/fs/inotify/max_user_instances": "1024",
}

// userDevices are device files for every user, as udev makes them; the kernel creates them with
// 0600. Opening these files grants no rights by itself: mounts and interfaces check capabilities.
var userDevices = []string{"/dev/fuse", "/dev/net/tun"}

// raiseLimits sets limits and modes as distributions do. Programs inherit the limit of open files.
// Missing sysctls and devices are skipped.
func raiseLimits() error {
	for name, value := range sysctls {
		_ = os.WriteFile(name, []byte(value), 0)
	}
	for _, name := range userDevices {
		_ = os.Chmod(name, 0o666) // #nosec G302 -- see userDevices
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: openFiles, Max: maxOpenFiles}); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}
