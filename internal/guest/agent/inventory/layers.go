package inventory

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/handover"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// Layers holds the two directories of an overlay, opened before the new root hid them. All writes
// are in the upper one, so it is enough to read some hundred paths there to find all changes to the
// image.
type Layers struct{ lower, upper *os.File }

// OpenLayers opens the directories. They stay open permanently.
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

// SavedLayers are layers in the state of an agent that hands over.
type SavedLayers struct {
	Lower handover.FD `json:"lower"` // the lower directory
	Upper handover.FD `json:"upper"` // the upper directory
}

// Save returns the layers for a later program.
func (l Layers) Save(b *handover.Bundle) SavedLayers {
	return SavedLayers{b.Add(l.lower), b.Add(l.upper)}
}

// RestoreLayers returns the layers of an earlier program.
func RestoreLayers(s *handover.State, saved SavedLayers) (l Layers, err error) {
	if l.lower, err = s.File(saved.Lower, "lower layer"); err != nil {
		return Layers{}, err
	}
	l.upper, err = s.File(saved.Upper, "upper layer")
	return l, err
}

// OpenUpper opens the upper directory, for its file system.
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

// Known reports whether there are layers.
func (l Layers) Known() bool { return l.lower != nil && l.upper != nil }

// Overlayfs marks on directories in the upper layer.
const (
	opaqueMark   = "trusted.overlay.opaque"   // hides the contents of the lower layer's directory
	redirectMark = "trusted.overlay.redirect" // shows another directory of the lower layer
)

// layered walks the changes in an overlay.
type layered struct {
	walk
	lower, upper string
}

// changes calls visit like files, but only for changed paths, including removed ones.
func (l Layers) changes(root string, visit func(*agentv1.InventoryFile) error) (unreadable uint64, err error) {
	through := func(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
	w := &layered{lower: through(l.lower), upper: through(l.upper)}
	w.root, w.visit = root, visit
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return 1, nil
	}
	w.device = st.Dev
	err = w.changed("", true)
	return w.unreadable, err
}

// changed visits the changes in a directory of the upper layer. below reports whether the lower
// layer has the directory, too.
func (w *layered) changed(dir string, below bool) error {
	written := w.names(w.upper, dir)
	hidden := map[string]bool{}
	switch {
	case !below:
	case w.marked(dir, redirectMark):
		// The contents come from another directory: list all of them.
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

// write handles a path in the upper layer.
func (w *layered) write(path string, below bool) error {
	f, device := w.look(w.root, path)
	switch {
	case f == nil && below: // the mark of a removed file
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

// gone visits a hidden path of the lower layer and everything below it.
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

// names returns the entries of a directory in one of the trees.
func (w *layered) names(tree, dir string) map[string]bool {
	entries, err := os.ReadDir(filepath.Join(tree, dir) + "/") // the slash follows a descriptor's link
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
