//go:build unix

package seal

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lock keeps other processes from the file until it is closed: two daemons would use a key twice.
func lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another daemon seals with it: %w", err)
	}
	return nil
}

// giveTo makes the owner of a file or directory the owner of f.
func giveTo(f *os.File, like string) error {
	st, err := os.Stat(like)
	if err != nil {
		return err
	}
	of, ok := st.Sys().(*syscall.Stat_t)
	if !ok || int(of.Uid) == os.Geteuid() && int(of.Gid) == os.Getegid() {
		return nil
	}
	return f.Chown(int(of.Uid), int(of.Gid))
}
