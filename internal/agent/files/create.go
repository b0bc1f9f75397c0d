package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/agent/account"
)

// makeDirs makes path and what is missing above it, and gives what it made to u.
func makeDirs(path string, u account.User) error {
	var missing []string
	for p := path; ; p = filepath.Dir(p) {
		st, err := os.Stat(p)
		if err == nil {
			if !st.IsDir() {
				return fmt.Errorf("make folder '%s': %w", p, unix.ENOTDIR)
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, p)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := give(missing[i], u); err != nil {
			return err
		}
	}
	return nil
}

// give makes u the owner, where the agent may do so.
func give(path string, u account.User) error {
	if os.Getuid() != 0 {
		return nil
	}
	return os.Lchown(path, u.UID, u.GID)
}

// notRegularError says what is at a path where a file was wanted.
type notRegularError struct {
	path string
	dir  bool
}

func (e *notRegularError) Error() string {
	if e.dir {
		return fmt.Sprintf("path '%s' is a directory", e.path)
	}
	return fmt.Sprintf("path '%s' is not a regular file", e.path)
}

// create opens path for writing from its beginning, for u.
func create(path string, u account.User) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, &notRegularError{path, st.IsDir()}
	}
	if err := makeDirs(filepath.Dir(path), u); err != nil {
		return nil, err
	}
	// Not blocking: between the look and the open it may have become a pipe.
	const flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC | unix.O_NONBLOCK
	f, err := os.OpenFile(path, flags, 0o666)
	if errors.Is(err, unix.ETXTBSY) {
		// A program that runs keeps its old file; the name gets a new one.
		if err = os.Remove(path); err == nil {
			f, err = os.OpenFile(path, flags, 0o666)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := give(path, u); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
