package harness

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// TempDir makes the directory of a daemon. It first removes the directories of killed runs; a live
// daemon holds its lock. The prefix must be short, and unique to the package.
func TempDir(prefix string) (string, error) {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*", "run", "lock"))
	for _, name := range locks {
		if f, err := os.Open(name); err == nil {
			if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				os.RemoveAll(filepath.Dir(filepath.Dir(name)))
			}
			f.Close()
		}
	}
	return os.MkdirTemp("", prefix)
}

// Names returns the names in a directory, or an empty list if the directory does not exist.
func Names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// Link makes to a hard link to from, or a copy of it on another file system.
func Link(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, st.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
