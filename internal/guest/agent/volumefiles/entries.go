//go:build linux

package volumefiles

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto/volumewire"
)

// stat describes a file.
func stat(w http.ResponseWriter, _ *http.Request, p place) error {
	e, err := p.entry()
	if err != nil {
		return err
	}
	return answer(w, e)
}

// entry describes the file at a place, without following a link.
func (p place) entry() (volumewire.Entry, error) {
	info, err := p.root.Lstat(p.name)
	if err != nil {
		return volumewire.Entry{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	e := volumewire.Entry{Name: filepath.Base(p.path()), Path: p.path(), Kind: kindOf(info.Mode()), Size: info.Size(),
		Mode: st.Mode & volumewire.MaxMode, UID: st.Uid, GID: st.Gid,
		Atime: milliseconds(st.Atim), Mtime: milliseconds(st.Mtim), Ctime: milliseconds(st.Ctim)}
	if e.Kind == volumewire.Symlink {
		e.Target, err = p.root.Readlink(p.name)
	}
	return e, err
}

func milliseconds(t syscall.Timespec) int64 { return time.Unix(t.Unix()).UnixMilli() }

func kindOf(m fs.FileMode) volumewire.Kind {
	switch {
	case m.IsRegular():
		return volumewire.File
	case m.IsDir():
		return volumewire.Directory
	case m.Type() == fs.ModeSymlink:
		return volumewire.Symlink
	}
	return volumewire.Other
}

// list describes the files of a directory, and those below it as far as the depth goes.
func list(w http.ResponseWriter, r *http.Request, p place) error {
	depth := 1
	if text := r.URL.Query().Get(volumewire.QueryDepth); text != "" {
		var err error
		if depth, err = strconv.Atoi(text); err != nil || depth < 1 || depth > volumewire.MaxDepth {
			return invalid(fmt.Errorf("depth is not a number from 1 to %d", volumewire.MaxDepth))
		}
	}
	out := []volumewire.Entry{}
	if err := p.list(depth, &out); err != nil {
		return err
	}
	return answer(w, out)
}

var errMany = invalid(fmt.Errorf("more than %d files: ask for a smaller depth, or a directory below",
	volumewire.MaxEntries))

func (p place) list(depth int, out *[]volumewire.Entry) error {
	names, err := p.names(volumewire.MaxEntries - len(*out))
	if err != nil {
		return err
	}
	for _, name := range names {
		child := place{p.root, filepath.Join(p.name, name)}
		e, err := child.entry()
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		*out = append(*out, e)
		if e.Kind != volumewire.Directory || depth == 1 {
			continue
		}
		if err := child.list(depth-1, out); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// names returns the sorted names of a directory. More than the limit is an error.
func (p place) names(limit int) ([]string, error) {
	f, err := p.root.OpenFile(p.name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return nil, notDirectory(p, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > limit {
		return nil, errMany
	}
	slices.Sort(names)
	return names, nil
}

// notDirectory returns the error for a place that is no directory: it exists, or a part of its path is a file.
func notDirectory(p place, err error) error {
	if _, missing := p.root.Lstat(p.name); missing != nil {
		return missing
	}
	return invalid(err)
}

// change sets the owner and the mode of a file. It follows links within the volume.
func change(w http.ResponseWriter, r *http.Request, p place) error {
	a, err := attrsOf(r)
	if err != nil {
		return err
	}
	if err := p.set(a); err != nil {
		return err
	}
	return stat(w, r, p)
}

func (p place) set(a volumewire.Attrs) error {
	id := func(of *uint32) int {
		if of == nil {
			return -1
		}
		return int(*of)
	}
	if a.UID != nil || a.GID != nil {
		if err := p.root.Chown(p.name, id(a.UID), id(a.GID)); err != nil {
			return err
		}
	}
	if a.Mode == nil {
		return nil
	}
	return p.root.Chmod(p.name, fileMode(*a.Mode))
}

// fileMode converts the mode of a system call.
func fileMode(m uint32) fs.FileMode {
	out := fs.FileMode(m) & fs.ModePerm
	for bit, mode := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid,
		unix.S_ISVTX: fs.ModeSticky} {
		if m&bit != 0 {
			out |= mode
		}
	}
	return out
}

// complete returns the attributes of a new file.
func complete(a volumewire.Attrs, mode uint32) volumewire.Attrs {
	owner := uint32(volumewire.DefaultID)
	a.UID, a.GID, a.Mode = cmp.Or(a.UID, &owner), cmp.Or(a.GID, &owner), cmp.Or(a.Mode, &mode)
	return a
}

// makeDir makes a directory.
func makeDir(w http.ResponseWriter, r *http.Request, p place) error {
	a, err := attrsOf(r)
	if err != nil {
		return err
	}
	if err := p.mkdir(complete(a, 0o755), forced(r)); err != nil {
		return err
	}
	return stat(w, r, p)
}

// mkdir makes a directory with these attributes. With parents it makes missing ones, too, and accepts a directory
// that exists, which keeps its attributes.
func (p place) mkdir(a volumewire.Attrs, parents bool) error {
	err := p.root.Mkdir(p.name, 0o700)
	switch {
	case err == nil:
		return p.set(a)
	case !parents:
		return err
	case errors.Is(err, fs.ErrExist):
		if info, err := p.root.Stat(p.name); err == nil && info.IsDir() {
			return nil
		}
		return err
	case errors.Is(err, fs.ErrNotExist) && p.name != ".":
		if err := (place{p.root, filepath.Dir(p.name)}).mkdir(a, true); err != nil {
			return err
		}
		return p.mkdir(a, false)
	}
	return err
}

// remove removes a file, or a directory with its content.
func remove(w http.ResponseWriter, _ *http.Request, p place) error {
	if p.name == "." {
		return invalid(errors.New("the root of a volume cannot be removed"))
	}
	if _, err := p.root.Lstat(p.name); err != nil {
		return err
	}
	if err := p.root.RemoveAll(p.name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
