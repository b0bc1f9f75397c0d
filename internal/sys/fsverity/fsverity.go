// Package fsverity makes the kernel verify a file's content on each read, if the file system can (ext4 with the
// feature verity, Btrfs, f2fs; Linux Documentation/filesystems/fsverity.rst). Package layer/store enables it for
// its layers, and `forkd doctor` checks for support. Beware: such a file can never be written again, and it
// cannot be enabled while the file is open for writing.
package fsverity

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrUnsupported means that the file system or the kernel has no fs-verity.
var ErrUnsupported = errors.New("fs-verity is not supported")

// Enable enables fs-verity for a file that is open for reading. It succeeds if fs-verity is already enabled.
func Enable(f *os.File) error {
	switch err := enable(int(f.Fd())); {
	case err == nil, errors.Is(err, unix.EEXIST):
		return nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.ENOSYS):
		return ErrUnsupported
	default:
		return fmt.Errorf("enable fs-verity for %s: %w", f.Name(), err)
	}
}

// Probe tries to enable fs-verity for a temporary file in a directory.
func Probe(dir string) error {
	w, err := os.CreateTemp(dir, ".verity-")
	if err != nil {
		return err
	}
	defer os.Remove(w.Name())
	_, err = w.WriteString("a file that is never written again")
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	r, err := os.Open(w.Name())
	if err != nil {
		return err
	}
	defer r.Close()
	return Enable(r)
}
