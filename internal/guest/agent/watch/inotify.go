package watch

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// watched selects the events of a directory's watch. Events about the directory itself are
// requested only for the end of the root: for other directories, the parent reports them once.
const (
	watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM |
		unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_EXCL_UNLINK
	watchedRoot = watched | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// change is a record from the kernel (struct inotify_event).
type change struct {
	wd     int32
	mask   uint32
	cookie uint32 // same in both halves of a rename
	name   string // within the directory; empty for the directory itself
}

// parseChanges reads records. It skips an incomplete one.
func parseChanges(b []byte) (out []change) {
	le := binary.LittleEndian
	for len(b) >= unix.SizeofInotifyEvent {
		c := change{wd: int32(le.Uint32(b)), mask: le.Uint32(b[4:]), cookie: le.Uint32(b[8:])}
		n := uint64(le.Uint32(b[12:]))
		if b = b[unix.SizeofInotifyEvent:]; n > uint64(len(b)) {
			break
		}
		name, _, _ := bytes.Cut(b[:n], []byte{0})
		c.name = string(name)
		out, b = append(out, c), b[n:]
	}
	return out
}

// watches maps the watched directories of an inotify instance. A rename changes the paths of all
// directories below.
type watches struct {
	paths map[int32]string
	wds   map[string]int32
}

func newWatches() watches { return watches{map[int32]string{}, map[string]int32{}} }

func (w *watches) set(wd int32, path string) {
	if old, ok := w.paths[wd]; ok { // renamed
		delete(w.wds, old)
	}
	w.paths[wd], w.wds[path] = path, wd
}

func (w *watches) drop(wd int32) {
	if path, ok := w.paths[wd]; ok {
		delete(w.paths, wd)
		if w.wds[path] == wd {
			delete(w.wds, path)
		}
	}
}

// below returns the descriptors of a directory and of all directories below.
func (w *watches) below(dir string) (out []int32) {
	if _, ok := w.wds[dir]; !ok {
		return nil
	}
	for path, wd := range w.wds {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			out = append(out, wd)
		}
	}
	return out
}

func (w *watches) rename(from, to string) {
	for _, wd := range w.below(from) {
		w.set(wd, to+strings.TrimPrefix(w.paths[wd], from))
	}
}

// inotify is an inotify instance. One goroutine reads it; add, remove and resolve are for one other
// goroutine.
type inotify struct {
	f       *os.File
	changes chan []change
	closed  chan struct{}
	reader  sync.WaitGroup
	once    sync.Once

	watches watches
	// from is the first half of a rename, until the second half arrives. If cookie is 0, there is
	// none.
	from   string
	cookie uint32
}

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	i := &inotify{f: os.NewFile(uintptr(fd), "inotify"), changes: make(chan []change), closed: make(chan struct{}),
		watches: newWatches()}
	i.reader.Go(i.read)
	return i, nil
}

// read passes on changes until close.
func (i *inotify) read() {
	defer close(i.changes)
	buf := make([]byte, 64<<10)
	for {
		n, err := i.f.Read(buf)
		if err != nil {
			return
		}
		select {
		case i.changes <- parseChanges(buf[:n]):
		case <-i.closed:
			return
		}
	}
}

func (i *inotify) close() {
	i.once.Do(func() {
		close(i.closed)
		_ = i.f.Close()
	})
	i.reader.Wait()
}

// add watches a directory, or records its new path.
func (i *inotify) add(dir string, mask uint32) error {
	raw, err := i.f.SyscallConn()
	if err != nil {
		return err
	}
	var wd int
	ctl := raw.Control(func(fd uintptr) { wd, err = unix.InotifyAddWatch(int(fd), dir, mask) })
	if ctl != nil {
		return ctl
	}
	if err == nil {
		i.watches.set(int32(wd), dir)
	}
	return err
}

// remove ends the watches of a directory that was moved away, and of all directories below.
func (i *inotify) remove(dir string) {
	raw, err := i.f.SyscallConn()
	if err != nil {
		return
	}
	for _, wd := range i.watches.below(dir) {
		i.watches.drop(wd)
		_ = raw.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) })
	}
}

// resolve returns the path of a change, and updates the paths of renamed directories. It returns
// false if the directory is no longer watched.
func (i *inotify) resolve(c change) (path string, ok bool) {
	if i.cookie != 0 && (c.mask&unix.IN_MOVED_TO == 0 || c.cookie != i.cookie) {
		i.remove(i.from) // its other half is outside the tree
		i.from, i.cookie = "", 0
	}
	if c.mask&unix.IN_IGNORED != 0 {
		i.watches.drop(c.wd)
		return "", false
	}
	dir, ok := i.watches.paths[c.wd]
	if !ok {
		return "", false
	}
	if path = dir; c.name != "" {
		path = filepath.Join(dir, c.name)
	}
	switch {
	case c.mask&unix.IN_ISDIR == 0:
	case c.mask&unix.IN_MOVED_FROM != 0:
		i.from, i.cookie = path, c.cookie
	case c.mask&unix.IN_MOVED_TO != 0 && i.cookie != 0:
		i.watches.rename(i.from, path)
		i.from, i.cookie = "", 0
	}
	return path, true
}
