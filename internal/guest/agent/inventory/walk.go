package inventory

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// walk is a walk through one file system.
type walk struct {
	root       string
	device     uint64
	unreadable uint64
	visit      func(*agentv1.InventoryFile) error
}

// files calls visit for everything below root on root's own file system, without root itself. A
// directory comes before its contents. Entries are sorted by the bytes of their names. Paths begin
// at root. Files that disappear meanwhile are skipped.
func files(root string, visit func(*agentv1.InventoryFile) error) (unreadable uint64, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return 1, nil
	}
	w := &walk{root: root, device: st.Dev, visit: visit}
	err = w.folder("")
	return w.unreadable, err
}

// folder visits the contents of a directory. dir is its path below root, empty for root itself.
func (w *walk) folder(dir string) error {
	entries, err := os.ReadDir(filepath.Join(w.root, dir)) // sorted by name
	if err != nil && !os.IsNotExist(err) {
		w.unreadable++
	}
	for _, en := range entries {
		if err := w.entry(dir+"/"+en.Name(), en); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(path string, en fs.DirEntry) error {
	f, device := w.look(w.root, path)
	if f == nil {
		return nil
	}
	// Check only directories: other files of an overlay have the device numbers of its layers.
	if en.IsDir() && device != w.device {
		return nil
	}
	if err := w.visit(f); err != nil {
		return err
	}
	if en.IsDir() {
		return w.folder(path)
	}
	return nil
}

// look describes the file at a path below a directory. It returns nil if there is no file or it
// cannot be read.
func (w *walk) look(root, path string) (f *agentv1.InventoryFile, device uint64) {
	var st unix.Stat_t
	full := filepath.Join(root, path)
	switch err := unix.Lstat(full, &st); {
	case err == unix.ENOENT || err == unix.ENOTDIR:
		return nil, 0
	case err != nil: // for example a path that is too long
		w.unreadable++
		return nil, 0
	}
	f = &agentv1.InventoryFile{
		Path: []byte(path), Mode: st.Mode, Uid: st.Uid, Gid: st.Gid, Size: st.Size, MtimeNs: st.Mtim.Nano(),
		CtimeNs: st.Ctim.Nano(),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		if target, err := os.Readlink(full); err == nil {
			f.Target = []byte(target)
		}
	case unix.S_IFCHR, unix.S_IFBLK:
		f.Rdev = st.Rdev
	}
	return f, st.Dev
}

func isFolder(f *agentv1.InventoryFile) bool { return f != nil && f.Mode&unix.S_IFMT == unix.S_IFDIR }

// union returns the names of both sets, sorted.
func union(a, b map[string]bool) []string {
	out := make([]string, 0, len(a))
	for name := range a {
		out = append(out, name)
	}
	for name := range b {
		if !a[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
