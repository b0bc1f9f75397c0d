//go:build unix

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Try locks f exclusively. It returns ErrHeld if another open file has a lock of any kind.
func Try(f *os.File) error {
	err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

// Lock locks f exclusively. It waits without a limit.
func Lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// Share locks f together with others that share it. It waits for an exclusive lock without a limit, and replaces the
// exclusive lock of f itself.
func Share(f *os.File) error { return flock(f, unix.LOCK_SH) }

// Unlock releases the lock of f, also for copies of its descriptor.
func Unlock(f *os.File) error { return flock(f, unix.LOCK_UN) }

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
