// Package fairserver disables the kernel's fair servers. Since 6.8, Linux has one on each CPU, to make sure that
// ordinary threads run even if real-time threads would use all of the time. In 6.12 a fair server sets a timer
// whenever a CPU gets work, and the timer fires most of a second later. On a CPU that is idle by then, this timer
// is the only wakeup. The kernel then also does deferrable work and sets the next timer. Each one is an exit of a
// VM. Real-time throttling is part of these servers, so without them a real-time thread that never sleeps has its
// CPU for itself.
package fairserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// debugfs is the usual mount point of debugfs.
const debugfs = "/sys/kernel/debug"

// Off disables all fair servers. It needs root, and sysfs at /sys. It mounts debugfs while it runs, if necessary.
// If the kernel has no fair servers, or no files to control them, Off does nothing.
func Off() (err error) {
	if knobs(debugfs) == nil {
		if err := unix.Mount("debugfs", debugfs, "debugfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount debugfs: %w", err)
		}
		defer func() {
			err = errors.Join(err, os.NewSyscallError("unmount debugfs", unix.Unmount(debugfs, unix.MNT_DETACH)))
		}()
	}
	return off(debugfs)
}

// knobs returns the files with each server's runtime, in nanoseconds per period.
func knobs(root string) []string {
	files, _ := filepath.Glob(filepath.Join(root, "sched", "fair_server", "cpu*", "runtime"))
	return files
}

func off(root string) error {
	var errs []error
	for _, name := range knobs(root) {
		errs = append(errs, os.WriteFile(name, []byte("0"), 0))
	}
	return errors.Join(errs...)
}
