package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/files"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
)

// tree is a watched directory and, if recursive, everything below it.
type tree struct {
	actor     files.Actor // the watching user
	root      string
	recursive bool
	entries   bool
	in        *inotify
	ready     []change // read but not handled yet
}

type options struct {
	recursive, entries, network bool
}

// errLost reports that the kernel dropped events.
var errLost = errors.New("too many changes at once: some events were lost")

// open watches path. It must be a directory, readable for the calling thread.
func open(path string, o options) (*tree, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	if !o.network && onNetwork(path) {
		return nil, connect.NewError(connect.CodeInvalidArgument,
			fmt.Errorf("path '%s' is on a network mount, where changes made elsewhere are not seen", path))
	}
	in, err := newInotify()
	if err != nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("open watcher: %w", err))
	}
	t := &tree{root: path, recursive: o.recursive, entries: o.entries, in: in}
	if _, err := t.add(path); err != nil {
		in.close()
		if errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("watch '%s': %w", path, err))
	}
	return t, nil
}

// resolve returns a directory's path without links, because events carry the name under which it
// was added.
func resolve(path string) (string, error) {
	at, err := files.Open(path, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer at.Close()
	st, err := at.Stat()
	if err != nil {
		return "", err
	}
	if !st.IsDir() {
		return "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path '%s' is not a directory", path))
	}
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", at.Fd()))
}

func (t *tree) close() { t.in.close() }

// add watches dir, and everything below if recursive, and returns the paths it found there.
func (t *tree) add(dir string) (found []string, err error) {
	if !t.recursive {
		return nil, t.in.add(dir, watchedRoot)
	}
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if p == dir {
				return err
			}
			return nil
		}
		if p != dir {
			found = append(found, p)
		}
		if !d.IsDir() {
			return nil
		}
		mask := uint32(watched)
		if p == t.root {
			mask = watchedRoot
		}
		if err := t.in.add(p, mask); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
		return nil
	})
	return found, err
}

// next waits for a change. One change may be several events.
func (t *tree) next(ctx context.Context) ([]*filesystem.FilesystemEvent, error) {
	for {
		for len(t.ready) > 0 {
			c := t.ready[0]
			t.ready = t.ready[1:]
			if c.mask&unix.IN_Q_OVERFLOW != 0 {
				return nil, errLost
			}
			if out, err := t.translated(c); err != nil || len(out) > 0 {
				return out, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case changes, ok := <-t.in.changes:
			if !ok {
				return nil, fs.ErrClosed
			}
			t.ready = changes
		}
	}
}

// translated calls translate, with the rights of the watching user if it reads files.
func (t *tree) translated(c change) (out []*filesystem.FilesystemEvent, err error) {
	if !t.entries && !t.recursive {
		return t.translate(c), nil
	}
	err = t.actor.Do(func() error {
		out = t.translate(c)
		return nil
	})
	return out, err
}

func (t *tree) translate(c change) []*filesystem.FilesystemEvent {
	path, ok := t.in.resolve(c)
	if !ok || c.name == "" && c.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) == 0 {
		return nil // the parent reports changes of the directory itself
	}
	var out []*filesystem.FilesystemEvent
	for _, m := range []struct {
		mask uint32
		kind filesystem.EventType
	}{
		{unix.IN_CREATE | unix.IN_MOVED_TO, filesystem.EventType_EVENT_TYPE_CREATE},
		{unix.IN_MOVED_FROM | unix.IN_MOVE_SELF, filesystem.EventType_EVENT_TYPE_RENAME},
		{unix.IN_ATTRIB, filesystem.EventType_EVENT_TYPE_CHMOD},
		{unix.IN_MODIFY, filesystem.EventType_EVENT_TYPE_WRITE},
		{unix.IN_DELETE | unix.IN_DELETE_SELF, filesystem.EventType_EVENT_TYPE_REMOVE},
	} {
		if c.mask&m.mask != 0 {
			out = append(out, t.event(path, m.kind))
		}
	}
	if c.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 && t.recursive {
		out = append(out, t.follow(path)...)
	}
	return out
}

// follow watches a new directory. Its present contents were created before the watch, so it reports
// them as created now.
func (t *tree) follow(path string) []*filesystem.FilesystemEvent {
	if st, err := os.Lstat(path); err != nil || !st.IsDir() {
		return nil
	}
	found, _ := t.add(path) // it may be gone again
	out := make([]*filesystem.FilesystemEvent, 0, len(found))
	for _, p := range found {
		out = append(out, t.event(p, filesystem.EventType_EVENT_TYPE_CREATE))
	}
	return out
}

func (t *tree) event(path string, kind filesystem.EventType) *filesystem.FilesystemEvent {
	name := strings.TrimPrefix(strings.TrimPrefix(path, t.root), "/")
	ev := &filesystem.FilesystemEvent{Name: strings.ToValidUTF8(name, "\uFFFD"), Type: kind}
	if t.entries && kind != filesystem.EventType_EVENT_TYPE_REMOVE && kind != filesystem.EventType_EVENT_TYPE_RENAME {
		if e, err := files.Entry(path, path); err == nil {
			ev.Entry = e
		}
	}
	return ev
}

// onNetwork reports whether path is on a file system that other hosts can change.
func onNetwork(path string) bool {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return false
	}
	switch uint64(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC,
		unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.CODA_SUPER_MAGIC:
		return true
	}
	return false
}
