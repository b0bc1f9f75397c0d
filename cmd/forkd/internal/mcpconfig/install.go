package mcpconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// maxFile limits a configuration, in bytes. Claude's may have a history of a few MiB.
const maxFile = 64 << 20

// Installed describes what Install did.
type Installed struct {
	File    string `json:"file"`
	Backup  string `json:"backup,omitempty"` // empty if there was no file, or it did not change
	Changed bool   `json:"changed"`
}

// Install puts the entry into the file of a client. It keeps a copy of the file as it was, and
// replaces it at once, so that no reader sees a part. If it returns an error, the file is unchanged.
func (c Client) Install(file, name string, e Entry) (Installed, error) {
	file, err := target(file)
	done := Installed{File: file}
	if err != nil {
		return done, err
	}
	old, mode, err := read(file)
	if err != nil {
		return done, err
	}
	next, err := c.Merge(old, name, e)
	if err != nil {
		return done, fmt.Errorf("%s stays as it is: %w", file, err)
	}
	if same(old, next) {
		return done, nil
	}
	if old != nil {
		if done.Backup, err = backUp(file, old, mode); err != nil {
			return done, err
		}
	}
	done.Changed = true
	return done, replace(file, next, mode)
}

// same reports whether the configuration has the same JSON, ignoring space.
func same(old, next []byte) bool {
	if old == nil {
		return false
	}
	a, err := parse(old)
	b, failed := parse(next)
	if err != nil || failed != nil {
		return false
	}
	return bytes.Equal(compact(a), compact(b))
}

// target follows links, so that a link to a file in another place stays a link.
func target(file string) (string, error) {
	to, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		if st, err := os.Lstat(file); err == nil && st.Mode()&fs.ModeSymlink != 0 {
			return "", fmt.Errorf("%s is a link to a file that does not exist", file)
		}
		return file, nil
	}
	return to, err
}

// read returns a file and its mode. The content is nil if there is no file.
func read(file string) ([]byte, fs.FileMode, error) {
	st, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0o600, nil // it may get a token
	case err != nil:
		return nil, 0, err
	case !st.Mode().IsRegular() || st.Size() > maxFile:
		return nil, 0, fmt.Errorf("%s is not a file of at most %d bytes", file, maxFile)
	}
	b, err := os.ReadFile(file)
	if b == nil {
		b = []byte{}
	}
	return b, st.Mode().Perm(), err
}

// backUp writes a copy beside the file, under a new name.
func backUp(file string, b []byte, mode fs.FileMode) (string, error) {
	for i := 1; ; i++ {
		name := file + ".forkd-backup"
		if i > 1 {
			name += "-" + strconv.Itoa(i)
		}
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if errors.Is(err, fs.ErrExist) && i < 1000 {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(b)
		return name, errors.Join(err, f.Close())
	}
}

// replace writes a file under another name, and renames it.
func replace(file string, b []byte, mode fs.FileMode) (err error) {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".forkd-part-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
