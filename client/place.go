package client

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// partPrefix begins the names of files that are being written. One that stays is
// what a killed copy left.
const partPrefix = ".forkd-part-"

func partName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return partPrefix + hex.EncodeToString(b[:])
}

// write makes the file, or replaces it when all of in has come. mode is for a
// new one.
func (p place) write(in io.Reader, mode fs.FileMode, old fs.FileInfo) (err error) {
	part := partName()
	f, err := p.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode.Perm())
	if errors.Is(err, fs.ErrPermission) && old != nil {
		return p.overwrite(in) // the directory is not ours, the file is
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
		_, err = io.Copy(f, in)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return p.failed(err)
	}
	return p.failed(p.root.Rename(part, p.name))
}

func (p place) overwrite(in io.Reader) error {
	f, err := p.root.OpenFile(p.name, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return p.failed(err)
	}
	_, err = io.Copy(f, in)
	return p.failed(errors.Join(err, f.Close()))
}

// link makes a link in place of nothing or of another one. What it says does not
// matter: nothing here follows it.
func (p place) link(text string) error {
	st, err := p.root.Lstat(p.name)
	if err == nil && st.Mode()&fs.ModeSymlink == 0 {
		return p.inTheWay("a link", st)
	}
	part := partName()
	if err := p.root.Symlink(text, part); err != nil {
		return p.failed(err)
	}
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
