package files

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// PartPrefix begins the names of unfinished files. A file with this name may also remain after an
// upload that crashed.
const PartPrefix = ".forkd-part-"

// danglingError reports a link to a missing file. Writing through it would create that file.
type danglingError struct{ path string }

func (e *danglingError) Error() string {
	return fmt.Sprintf("path '%s' is a broken link", e.path)
}

// content is the new content of a file.
type content struct {
	fill     func(*os.File) error // writes the content to an empty file
	mode     fs.FileMode          // used if setMode; otherwise the old file's mode or the default
	setMode  bool
	modTime  time.Time // if zero, the time of writing
	metadata map[string]string
}

// from returns a fill function that copies body.
func from(body io.Reader) func(*os.File) error {
	return func(f *os.File) error {
		_, err := io.Copy(f, body)
		return err
	}
}

// replace writes a file, so that its name never refers to incomplete content: it writes a new file
// in the same directory and renames it over the old one. If only root could restore the old file's
// owner or links, it writes into the old file. This is the case if another user owns it or if it
// has several names.
func (a Actor) replace(path string, c content) error {
	old, err := openOld(nil, path, path)
	if err != nil {
		return err
	}
	if old == nil {
		dir, err := a.makeDirs(filepath.Dir(path))
		if err != nil {
			return err
		}
		defer dir.Close()
		return a.writePart(dir, filepath.Base(path), nil, c)
	}
	return a.replaceOld(old, c)
}

// replaceOld replaces an existing file and closes it.
func (a Actor) replaceOld(old *oldFile, c content) error {
	defer old.close()
	if !old.replaceable(a) {
		return old.overwrite(c)
	}
	dir, err := Open(filepath.Dir(old.path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	return a.writePart(dir, filepath.Base(old.path), old, c)
}

// oldFile is the file to replace.
type oldFile struct {
	path string // without links
	at   *os.File
	st   fs.FileInfo
	sys  *syscall.Stat_t
}

// openOld opens the file at name in dir, or at an absolute path without dir. It returns nil if no
// file exists. The actor needs the right to write to the file, even where the right to write to its
// directory would be enough.
func openOld(dir *os.File, name, shown string) (_ *oldFile, err error) {
	at, err := openAt(dir, name, unix.O_PATH, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, refuseDangling(dir, name, shown)
	}
	if err != nil {
		return nil, err
	}
	o := &oldFile{at: at}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if o.st, err = at.Stat(); err != nil {
		return nil, err
	}
	if !o.st.Mode().IsRegular() {
		return nil, &notRegularError{shown, o.st.IsDir()}
	}
	o.sys, _ = o.st.Sys().(*syscall.Stat_t)
	if o.path, err = realPath(at); err != nil {
		return nil, err
	}
	// Opening the file for writing would make overlayfs copy up a file of the image.
	err = unix.Faccessat2(int(at.Fd()), "", unix.W_OK, unix.AT_EACCESS|unix.AT_EMPTY_PATH)
	return o, err
}

// refuseDangling behaves like cp(1): creating the target of a link could create a file anywhere.
func refuseDangling(dir *os.File, name, shown string) error {
	link, err := openAt(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil // no file, or its directory is missing
	}
	_ = link.Close()
	return &danglingError{shown}
}

func (o *oldFile) close() { _ = o.at.Close() }

func (o *oldFile) replaceable(a Actor) bool {
	return o.sys != nil && o.sys.Nlink == 1 && (a.isRoot() || int(o.sys.Uid) == a.user.UID)
}

// overwrite writes into the old file itself.
func (o *oldFile) overwrite(c content) error {
	f, err := reopen(o.at, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.fill(f); err != nil {
		return err
	}
	if c.setMode { // only the owner can change it
		if err := f.Chmod(c.mode); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return finish(f, c)
}

// writePart writes a new file and renames it to name. If the directory does not allow this, it
// writes into the old file.
func (a Actor) writePart(dir *os.File, name string, old *oldFile, c content) (err error) {
	part := PartPrefix + randomName()
	f, err := openAt(dir, part, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o666)
	if err != nil {
		if old != nil && inPlace(err) {
			return old.overwrite(c)
		}
		return err
	}
	defer f.Close()
	renamed := false
	defer func() {
		if !renamed {
			_ = unix.Unlinkat(int(dir.Fd()), part, 0)
		}
	}()
	if err := old.dress(f, &c, a); err != nil {
		return err
	}
	if err := c.fill(f); err != nil {
		return err
	}
	if err := finish(f, c); err != nil {
		return err
	}
	err = unix.Renameat(int(dir.Fd()), part, int(dir.Fd()), name)
	if err != nil && old != nil && inPlace(err) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		again := c
		again.fill = from(f)
		return old.overwrite(again)
	}
	renamed = err == nil
	return err
}

// dress gives a new file the owner and mode of the old one.
func (o *oldFile) dress(f *os.File, c *content, a Actor) error {
	mode, set := c.mode, c.setMode
	if o != nil {
		if o.sys != nil && a.isRoot() {
			if err := f.Chown(int(o.sys.Uid), int(o.sys.Gid)); err != nil {
				return err
			}
		} else if o.sys != nil {
			_ = f.Chown(-1, int(o.sys.Gid)) // works if it is one of the user's groups
		}
		if !set {
			mode, set = o.st.Mode().Perm(), true
		}
	}
	if !set {
		return nil
	}
	return f.Chmod(mode)
}

// inPlace reports whether a directory does not allow to replace a file: it is not writable or is
// sticky, or the file is a mount point.
func inPlace(err error) bool {
	return slices.ContainsFunc([]error{fs.ErrPermission, unix.EBUSY, unix.EROFS, unix.EXDEV},
		func(of error) bool { return errors.Is(err, of) })
}

func finish(f *os.File, c content) error {
	if err := writeMetadata(self(f), c.metadata); err != nil && len(c.metadata) > 0 {
		return fmt.Errorf("write metadata: %w", err)
	}
	return setTime(f, c.modTime)
}

// setTime sets the modification time of an open file, if the actor may set it.
func setTime(f *os.File, at time.Time) error {
	err := os.Chtimes(self(f), time.Time{}, at)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

func randomName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// rewrite writes to the file in place as root and gives it to the user, as E2B's envd does.
func (a Actor) rewrite(path string, c content) (err error) {
	f, err := a.create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := a.give(f); err != nil {
		return err
	}
	if c.setMode {
		if err := f.Chmod(c.mode); err != nil {
			return err
		}
	}
	if err := c.fill(f); err != nil {
		return err
	}
	return finish(f, c)
}

// create opens path for writing from its beginning.
func (a Actor) create(path string) (*os.File, error) {
	const flags = unix.O_WRONLY | unix.O_TRUNC
	f, _, err := openFile(path, flags)
	if err == nil || (!errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ETXTBSY)) {
		return f, err
	}
	dir, err2 := a.makeDirs(filepath.Dir(path))
	if err2 != nil {
		return nil, err2
	}
	defer dir.Close()
	name := filepath.Base(path)
	if errors.Is(err, unix.ETXTBSY) {
		// A running program keeps the old file; the name gets a new one.
		if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil {
			return nil, err
		}
	}
	// O_NONBLOCK, because the file may have become a pipe in the meantime.
	return openAt(dir, name, flags|unix.O_CREAT|unix.O_NONBLOCK, 0o666)
}

// link creates a symbolic link. It replaces an existing file, but not a directory.
func (a Actor) link(path, text string) error {
	dir, err := a.makeDirs(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return a.linkAt(dir, filepath.Base(path), text, time.Time{})
}

func (a Actor) linkAt(dir *os.File, name, text string, modTime time.Time) error {
	fd := int(dir.Fd())
	part := PartPrefix + randomName()
	err := unix.Symlinkat(text, fd, part)
	if err != nil {
		return err
	}
	if !modTime.IsZero() { // best effort: some file systems cannot store it
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(modTime.UnixNano())}
		_ = unix.UtimesNanoAt(fd, part, times, unix.AT_SYMLINK_NOFOLLOW)
	}
	if a.root && os.Getuid() == 0 {
		err = unix.Fchownat(fd, part, a.user.UID, a.user.GID, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		err = unix.Renameat(fd, part, fd, name)
	}
	if err != nil {
		_ = unix.Unlinkat(fd, part, 0)
	}
	return err
}
