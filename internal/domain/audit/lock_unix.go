//go:build unix

package audit

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock keeps other daemons from the file until it is closed. Two writers would break each other's chain.
func lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s: another daemon writes to it: %w", f.Name(), err)
	}
	return nil
}
