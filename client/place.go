package client

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/forkd/forkd/internal/guest/treetar"
)

// partPrefix begins the names of files while they are written. A copy that is killed may leave such
// a file.
const partPrefix = ".forkd-part-"

func partName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return partPrefix + hex.EncodeToString(b[:])
}

// fill writes the content of a file to an empty file.
type fill func(*os.File) error

// filled returns a fill that copies from in.
func filled(in io.Reader) fill {
	return func(f *os.File) error {
		_, err := io.Copy(f, in)
		return err
	}
}

// write creates the file, or replaces it when all of the content has arrived. m.Mode applies to a
// new file.
func (p place) write(content fill, m treetar.Meta, old fs.FileInfo) (err error) {
	part := partName()
	f, err := p.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, m.Mode.Perm())
	if errors.Is(err, fs.ErrPermission) && old != nil {
		return p.overwrite(content, m) // the directory is not writable, but the file may be
	}
	if err != nil {
		return p.failed(err)
	}
	defer func() {
		if err != nil {
			_ = p.root.Remove(part)
		}
	}()
	if old != nil {
		err = f.Chmod(old.Mode().Perm())
	}
	if err == nil {
		err = content(f)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return p.failed(err)
	}
	if err := p.dated(part, m); err != nil {
		return p.failed(err)
	}
	return p.failed(p.root.Rename(part, p.name))
}

// dated sets the time of a file, if this user may set it.
func (p place) dated(name string, m treetar.Meta) error {
	if m.ModTime.IsZero() {
		return nil
	}
	err := p.root.Chtimes(name, time.Time{}, m.ModTime)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

func (p place) overwrite(content fill, m treetar.Meta) error {
	f, err := p.root.OpenFile(p.name, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return p.failed(err)
	}
	if err := errors.Join(content(f), f.Close()); err != nil {
		return p.failed(err)
	}
	return p.failed(p.dated(p.name, m))
}

// link makes a link, or replaces an existing link. Its text may be anything, because the copy never
// follows it.
func (p place) link(text string, m treetar.Meta) error {
	st, err := p.root.Lstat(p.name)
	if err == nil && st.Mode()&fs.ModeSymlink == 0 {
		return p.inTheWay("a link", st)
	}
	part := partName()
	if err := p.root.Symlink(text, part); err != nil {
		return p.failed(err)
	}
	dateLink(p.root, part, m.ModTime)
	if err := p.root.Rename(part, p.name); err != nil {
		_ = p.root.Remove(part)
		return p.failed(err)
	}
	return nil
}

// inTheWay returns an error that names the type of an existing file at the copy's path.
func (p place) inTheWay(wanted string, st fs.FileInfo) error {
	is := "something else"
	switch {
	case st == nil:
	case st.Mode()&fs.ModeSymlink != 0:
		is = "a link, and a copy does not write through links"
	case st.IsDir():
		is = "a directory"
	case st.Mode().IsRegular():
		is = "a file"
	default:
		is = treetar.Special(st.Mode())
	}
	return fmt.Errorf("%s should become %s but is %s; remove it first, or copy to another place", p.shown, wanted, is)
}

// failed puts the path to show to people into an error. os.Root reports only a name.
func (p place) failed(err error) error {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &at):
		return fmt.Errorf("write %s: %w", p.shown, at.Err)
	case errors.As(err, &link):
		return fmt.Errorf("write %s: %w", p.shown, link.Err)
	}
	return err
}
