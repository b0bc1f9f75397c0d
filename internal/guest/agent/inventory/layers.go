package inventory

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// Layers are the two folders of an overlay, opened before its root hid them. What was
// written is in the upper one, so it alone tells what differs from the image:
// some hundred paths instead of all.
type Layers struct{ lower, upper *os.File }

// OpenLayers opens the folders. They stay open for good.
func OpenLayers(lower, upper string) (Layers, error) {
	var l Layers
	for name, to := range map[string]**os.File{lower: &l.lower, upper: &l.upper} {
		fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return Layers{}, fmt.Errorf("open %s: %w", name, err)
		}
		*to = os.NewFile(uintptr(fd), name)
	}
	return l, nil
}

// OpenUpper opens the folder of the file system that all is written to.
func (l Layers) OpenUpper() (*os.File, error) {
	if !l.Known() {
		return nil, fmt.Errorf("the root's writable layer: %w", fs.ErrNotExist)
	}
	fd, err := unix.Openat(int(l.upper.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open the root's writable layer", err)
	}
	return os.NewFile(uintptr(fd), l.upper.Name()), nil
}

// Known tells whether there are layers.
func (l Layers) Known() bool { return l.lower != nil && l.upper != nil }

// Marks of overlayfs on folders in the upper layer.
const (
	opaqueMark   = "trusted.overlay.opaque"   // what the lower layer has there does not show
	redirectMark = "trusted.overlay.redirect" // what shows is another folder of the lower layer
)

// layered is a way through what was written.
type layered struct {
	walk
	lower, upper string
}

// changes is files, but for those that are as in the lower layer. What is there no more comes, too.
func (l Layers) changes(root string, visit func(*agentv1.InventoryFile) error) (unreadable uint64, err error) {
	through := func(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
	w := &layered{lower: through(l.lower), upper: through(l.upper)}
	w.root, w.visit = root, visit
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return 1, nil
	}
	w.device = uint64(st.Dev)
	err = w.changed("", true)
	return w.unreadable, err
}

// changed visits what was written in a folder of the upper layer; below tells
// whether the lower layer has a folder there, too.
func (w *layered) changed(dir string, below bool) error {
	written := w.names(w.upper, dir)
	hidden := map[string]bool{}
	switch {
	case !below:
	case w.marked(dir, redirectMark):
		// What shows is from elsewhere: all of it is told.
		for name := range w.names(w.root, dir) {
			written[name] = true
		}
		fallthrough
	case w.marked(dir, opaqueMark):
		hidden = w.names(w.lower, dir)
	}
	for _, name := range union(written, hidden) {
		path := dir + "/" + name
		var err error
		if written[name] {
			err = w.write(path, below)
		} else {
			err = w.gone(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write tells of a path that the upper layer has something to say about.
func (w *layered) write(path string, below bool) error {
	f, device := w.look(w.root, path)
	switch {
	case f == nil && below: // the mark of what was removed
		return w.gone(path)
	case f == nil:
		return nil
	}
	if isFolder(f) && device != w.device { // a mount
		return nil
	}
	if below {
		f.Below, _ = w.look(w.lower, path)
	}
	if err := w.visit(f); err != nil {
		return err
	}
	switch {
	case isFolder(f):
		return w.changed(path, isFolder(f.Below))
	case isFolder(f.Below):
		return w.goneFrom(path)
	}
	return nil
}

// gone tells of what the lower layer has and does not show, with all that is in it.
func (w *layered) gone(path string) error {
	below, _ := w.look(w.lower, path)
	if below == nil {
		return nil
	}
	if err := w.visit(&agentv1.InventoryFile{Path: []byte(path), Gone: true, Below: below}); err != nil {
		return err
	}
	if isFolder(below) {
		return w.goneFrom(path)
	}
	return nil
}

func (w *layered) goneFrom(dir string) error {
	for _, name := range union(w.names(w.lower, dir), nil) {
		if err := w.gone(dir + "/" + name); err != nil {
			return err
		}
	}
	return nil
}

// names are the entries of a folder in one of the trees.
func (w *layered) names(tree, dir string) map[string]bool {
	entries, err := os.ReadDir(filepath.Join(tree, dir) + "/") // the slash goes through a descriptor's link
	if err != nil && !os.IsNotExist(err) {
		w.unreadable++
	}
	out := make(map[string]bool, len(entries))
	for _, en := range entries {
		out[en.Name()] = true
	}
	return out
}

func (w *layered) marked(dir, mark string) bool {
	var b [1]byte
	n, err := unix.Lgetxattr(filepath.Join(w.upper, dir)+"/", mark, b[:])
	return err == nil && n > 0 || err == unix.ERANGE
}
