package snapshots

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// GuestFiles are the folders from which a request may name a kernel and a root file system by path.
// The zero value has no folders. Opening a path cannot leave its folder, not even through links.
// Otherwise a client of the API could read any file the daemon can read.
type GuestFiles struct{ dirs []guestDir }

type guestDir struct {
	path string
	root *os.Root
}

// OpenGuestFiles opens the folders. The caller closes them.
func OpenGuestFiles(paths []string) (_ *GuestFiles, err error) {
	g := &GuestFiles{}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	for _, path := range paths {
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		root, err := os.OpenRoot(path)
		if err != nil {
			return nil, fmt.Errorf("open folder of guest files: %w", err)
		}
		g.dirs = append(g.dirs, guestDir{path, root})
	}
	return g, nil
}

// Close closes the folders. Open files stay open.
func (g *GuestFiles) Close() {
	for _, d := range g.dirs {
		d.root.Close()
	}
}

// open opens the file named by a field of a request.
func (g *GuestFiles) open(field, path string) (*os.File, error) {
	if g == nil || len(g.dirs) == 0 {
		return nil, apierror.New(api.CodeForbidden, api.ReasonGuestFilesOff,
			"%s %s: this daemon opens no files by path", field, ellipsis.Clip(path, 200))
	}
	for _, d := range g.dirs {
		if rel, below := d.below(path); below {
			return d.open(field, path, rel)
		}
	}
	return nil, g.outside(field, path)
}

// below returns the path within the folder.
func (d guestDir) below(path string) (string, bool) {
	if !filepath.IsAbs(path) {
		return path, filepath.IsLocal(path)
	}
	rel, err := filepath.Rel(d.path, path)
	return rel, err == nil && filepath.IsLocal(rel)
}

// open does not wait for the other end of a FIFO.
func (d guestDir) open(field, path, rel string) (*os.File, error) {
	f, err := d.root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		if st, statErr := f.Stat(); statErr == nil && st.Mode().IsRegular() {
			return f, nil
		}
		f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err // without the path, which the message already has
		}
		return nil, apierror.New(api.CodeForbidden, "",
			"%s %s: open it below %s: %v", field, ellipsis.Clip(path, 200), d.path, err)
	}
	return nil, apierror.New(api.CodeInvalid, api.ReasonNotAFile,
		"%s: %s is not a file", field, ellipsis.Clip(path, 200))
}

func (g *GuestFiles) outside(field, path string) error {
	var names []string
	for _, d := range g.dirs {
		names = append(names, d.path)
	}
	return apierror.New(api.CodeForbidden, api.ReasonGuestFilesElsewhere,
		"%s %s: outside the daemon's directories for guest files, %s",
		field, ellipsis.Clip(path, 200), strings.Join(names, ", "))
}

// openPaths opens the files a request names by path. The engine receives names that lead to the
// open files, so later changes of the paths have no effect. told puts the given paths into an error
// of the engine.
func (g *GuestFiles) openPaths(kernel, rootfs string) (_ openPaths, err error) {
	var o openPaths
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	for i, p := range []struct{ field, path string }{{"kernel", kernel}, {"rootfs", rootfs}} {
		f, err := g.open(p.field, p.path)
		if err != nil {
			return openPaths{}, err
		}
		o.given[i], o.files[i] = p.path, f
	}
	return o, nil
}

// openPaths holds a kernel and a root file system.
type openPaths struct {
	given [2]string
	files [2]*os.File
}

func (o openPaths) name(i int) string { return fmt.Sprintf("/proc/self/fd/%d", o.files[i].Fd()) }

func (o openPaths) close() {
	for _, f := range o.files {
		if f != nil {
			f.Close()
		}
	}
}

func (o openPaths) told(err error) error {
	if err == nil {
		return nil
	}
	f := *apierror.From(err)
	given := strings.NewReplacer(o.name(0), ellipsis.Clip(o.given[0], 200), o.name(1), ellipsis.Clip(o.given[1], 200))
	f.Message = given.Replace(f.Message)
	return &f
}
