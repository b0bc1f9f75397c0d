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

// partPrefix begins the names of files that are being written. One that stays is
// what a killed copy left.
const partPrefix = ".forkd-part-"

func partName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return partPrefix + hex.EncodeToString(b[:])
}

// fill writes a file's content to an empty file.
type fill func(*os.File) error

// filled is the content that in has.
func filled(in io.Reader) fill {
	return func(f *os.File) error {
		_, err := io.Copy(f, in)
		return err
	}
}

// write makes the file, or replaces it when all of its content has come. The mode of m is for a new one.
func (p place) write(content fill, m treetar.Meta, old fs.FileInfo) (err error) {
	part := partName()
	f, err := p.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, m.Mode.Perm())
	if errors.Is(err, fs.ErrPermission) && old != nil {
		return p.overwrite(content, m) // the directory is not ours, the file is
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

// dated gives a file its time, if that is this user's to give.
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

// link makes a link in place of nothing or of another one. What it says does not
// matter: nothing here follows it.
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

// inTheWay says what is where the copy was to be.
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
		is = special(st.Mode())
	}
	return fmt.Errorf("%s should become %s but is %s; remove it first, or copy to another place", p.shown, wanted, is)
}

// failed words an error by the path that people know; os.Root tells a name alone.
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
