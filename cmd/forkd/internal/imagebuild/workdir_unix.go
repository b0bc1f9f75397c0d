//go:build unix

package imagebuild

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/filelock"
)

// flock locks a directory until it is closed. free is false if another process has the lock, or if the file system has
// no locks.
func flock(f *os.File) (free bool, err error) {
	err = filelock.Try(f)
	if errors.Is(err, filelock.ErrHeld) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOLCK) {
		return false, nil
	}
	return err == nil, err
}
