package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// Layout holds the destination, the owner and the mode of a COPY's files.
type Layout struct {
	Source string // as named in the step, with patterns
	Dest   string // absolute
	// Dir means that Dest is an existing folder, or was written as one.
	Dir      bool
	UID, GID int   // numeric owner of all entries, in the guest
	Mode     int64 // of all files and folders; negative: unchanged
	// Time is the time of all entries.
	Time time.Time
}

// root returns the part of the source before its first pattern.
func root(source string) string {
	source = path.Clean(source)
	parts := strings.Split(source, "/")
	for i, p := range parts {
		if strings.ContainsAny(p, `*?[{`) {
			return path.Clean(strings.Join(parts[:i], "/"))
		}
	}
	return source
}

// place returns the path of an entry in the guest, or false if the source does not include the
// entry.
func (l Layout) place(name, root string, dir bool) (string, bool) {
	rel := name
	switch {
	case name == root && dir:
		rel = "."
	case name == root:
		if l.Dir {
			return path.Join(l.Dest, path.Base(name)), true
		}
		return l.Dest, true
	case root != ".":
		var below bool
		if rel, below = strings.CutPrefix(name, root+"/"); !below {
			return "", false
		}
	}
	return path.Join(l.Dest, rel), true
}

// Rewrite writes an archive for a guest to unpack at its root. It returns the number of files,
// folders and links in it. It ends early with the context.
func Rewrite(ctx context.Context, in io.Reader, out io.Writer, l Layout, lim Limits) (int, error) {
	r, err := open(ctx, in, lim)
	if err != nil {
		return 0, err
	}
	w := &writer{tar: tar.NewWriter(out), l: l, root: root(l.Source), keyer: newKeyer(), made: map[nameKey]bool{},
		names: r.lim.Names}
	for {
		h, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = w.entry(h, r)
		}
		if err != nil {
			return w.n, err
		}
	}
	if w.n == 0 {
		return 0, fmt.Errorf("%w: nothing in it is below %q", ErrBad, short(w.root))
	}
	return w.n, w.tar.Close()
}

// writer is the state of a Rewrite.
type writer struct {
	tar  *tar.Writer
	l    Layout
	root string
	n    int
	keyer
	made  map[nameKey]bool // folders
	names int64            // bytes left for names
}

func (w *writer) entry(h *tar.Header, r *reader) error {
	at, ok := w.l.place(h.Name, w.root, h.Typeflag == tar.TypeDir)
	if !ok {
		return nil
	}
	if len(at) > maxPath {
		return fmt.Errorf("%w: the path of %q in the guest has %d bytes", ErrBad, short(h.Name), len(at))
	}
	w.n++
	if h.Typeflag == tar.TypeDir {
		return w.folder(at, h.Mode)
	}
	if at == "/" {
		return fmt.Errorf("%w: the destination is the root folder", ErrBad)
	}
	if err := w.above(at, h.Name); err != nil {
		return err
	}
	out := w.header(at, h.Typeflag, h.Mode)
	switch h.Typeflag {
	case tar.TypeSymlink:
		out.Linkname = h.Linkname
	case tar.TypeLink:
		to, ok := w.l.place(h.Linkname, w.root, false) // the reader has checked that it is a file
		if !ok {
			return fmt.Errorf("%w: the hard link %q is to a file that is not copied", ErrBad, short(h.Name))
		}
		out.Linkname = strings.TrimPrefix(to, "/")
	case tar.TypeReg:
		out.Size = h.Size
	}
	if err := w.write(out); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	return r.content(w.tar, h.Size)
}

// above writes the folders above a file for which the archive has no entries. The guest creates the
// folders above a single file.
func (w *writer) above(at, name string) error {
	if name == w.root {
		return nil
	}
	var missing []string
	for dir := path.Dir(at); dir != "/" && !w.made[w.key(dir)]; dir = path.Dir(dir) {
		missing = append(missing, dir)
		if dir == w.l.Dest {
			break
		}
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := w.folder(missing[i], 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) folder(at string, mode int64) error {
	if at == "/" || w.made[w.key(at)] {
		return nil
	}
	w.made[w.key(at)] = true
	return w.write(w.header(at, tar.TypeDir, mode))
}

func (w *writer) write(h *tar.Header) error {
	if w.names -= int64(len(h.Name) + len(h.Linkname)); w.names < 0 {
		return fmt.Errorf("%w: paths of its files in the guest take too many bytes", ErrTooLarge)
	}
	return w.tar.WriteHeader(h)
}

func (w *writer) header(at string, kind byte, mode int64) *tar.Header {
	if w.l.Mode >= 0 {
		mode = w.l.Mode
	}
	h := &tar.Header{Typeflag: kind, Name: strings.TrimPrefix(at, "/"), Mode: mode & 0o7777, Uid: w.l.UID, Gid: w.l.GID,
		ModTime: w.l.Time, Format: tar.FormatPAX}
	switch kind {
	case tar.TypeDir:
		h.Name += "/"
	case tar.TypeSymlink:
		h.Mode = 0o777
	}
	return h
}
