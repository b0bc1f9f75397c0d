// Package fairserver switches off the kernel's fair servers. Linux has one on each CPU since 6.8, which sees to it
// that ordinary threads run where real-time ones would leave them nothing. In 6.12 it sets a timer each time that a
// CPU has something to do, and the timer fires most of a second later: on a CPU that is idle by then it is all that wakes
// it, kernel work that can be put off is done as it is awake, and the next timer is set for that. Each is an exit of a
// VM. Real-time throttling is a part of these servers, so a real-time thread that never sleeps has its CPU for itself.
package fairserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// debugfs is where Linux has debugfs if it is mounted.
const debugfs = "/sys/kernel/debug"

// Off switches all of them off. It takes root, and sysfs at /sys; debugfs is mounted for as long as it takes. A kernel
// that has none, or no knob for them, is left as it is.
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

// knobs are the files with each server's time, in nanoseconds of each of its periods.
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
