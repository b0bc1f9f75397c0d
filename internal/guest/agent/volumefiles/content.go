//go:build linux

package volumefiles

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto/volumewire"
)

// read sends a regular file.
func read(w http.ResponseWriter, r *http.Request, p place) error {
	f, err := p.root.OpenFile(p.name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would wait for its writer
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return invalid(errors.New("it is not a regular file"))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", info.ModTime(), f)
	return nil
}

// write stores the body as a file. The file appears complete, or stays as it was: the body goes into a file
// without a name first. A file that exists keeps its owner and mode unless the request sets them.
func write(w http.ResponseWriter, r *http.Request, p place) error {
	a, err := attrsOf(r)
	if err != nil {
		return err
	}
	if a, err = p.attrsFor(a); err != nil {
		return err
	}
	parent := place{p.root, filepath.Dir(p.name)}
	if forced(r) {
		if err := parent.mkdir(complete(volumewire.Attrs{UID: a.UID, GID: a.GID}, 0o755), true); err != nil {
			return err
		}
	}
	dir, err := p.root.OpenFile(parent.name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := store(dir, filepath.Base(p.name), a, r.Body); err != nil {
		return err
	}
	return stat(w, r, p)
}

// attrsFor completes the attributes of the file that will be at a place.
func (p place) attrsFor(a volumewire.Attrs) (volumewire.Attrs, error) {
	info, err := p.root.Lstat(p.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return complete(a, 0o644), nil
	case err != nil:
		return a, err
	case info.IsDir():
		return a, invalid(unix.EISDIR)
	case !info.Mode().IsRegular():
		return complete(a, 0o644), nil
	}
	st := info.Sys().(*syscall.Stat_t)
	mode := st.Mode & volumewire.MaxMode
	if a.UID == nil {
		a.UID = &st.Uid
	}
	if a.GID == nil {
		a.GID = &st.Gid
	}
	return complete(a, mode), nil
}

// store writes a file of a directory.
func store(dir *os.File, name string, a volumewire.Attrs, from io.Reader) error {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if _, err := io.Copy(f, from); err != nil {
		return err
	}
	if err := errors.Join(f.Chown(int(*a.UID), int(*a.GID)), f.Chmod(fileMode(*a.Mode)), f.Sync()); err != nil {
		return err
	}
	temp := ".forkd-" + rand.Text()
	if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), int(dir.Fd()), temp,
		unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("name a file: %w", err)
	}
	if err := unix.Renameat(int(dir.Fd()), temp, int(dir.Fd()), name); err != nil {
		return errors.Join(err, unix.Unlinkat(int(dir.Fd()), temp, 0))
	}
	return dir.Sync()
}
