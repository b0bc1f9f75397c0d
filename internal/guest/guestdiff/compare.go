package guestdiff

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/guestdelta"
)

// DefaultLimit is the default limit for the length of each list in a Diff.
const DefaultLimit = 1000

// ErrNoRoom is the error of Compare if Keep returned false.
var ErrNoRoom = errors.New("no memory for the differences")

// Keep is called before n bytes are kept. It returns false if there is no room for them. A negative
// n returns bytes.
type Keep func(n int) bool

// Compare reads two inventories side by side and keeps only one part of each in memory. Each list
// of the result has at most limit entries. keep may be nil.
func Compare(ctx context.Context, before, after Source, limit int, keep Keep) (guestdelta.Diff, error) {
	c := comparison{a: reader{from: before, keep: keep}, b: reader{from: after, keep: keep}, limit: limit}
	defer c.a.drop()
	defer c.b.drop()
	c.diff.Files.Complete = true
	if err := c.files(ctx); err != nil {
		return guestdelta.Diff{}, err
	}
	if c.a.changesOnly != c.b.changesOnly {
		return guestdelta.Diff{}, fmt.Errorf("%w: one lists all of its files, the other what changed", ErrGuest)
	}
	for _, r := range []*reader{&c.a, &c.b} {
		if err := r.rest(); err != nil {
			return guestdelta.Diff{}, err
		}
		if r.end.GetUnreadable() > 0 {
			c.diff.Files.Complete = false
		}
	}
	c.diff.Processes.Complete = c.a.end.GetProcessesCut()+c.b.end.GetProcessesCut() == 0
	c.diff.Packages.Complete = c.a.end.GetPackagesCut()+c.b.end.GetPackagesCut() == 0
	c.processes()
	c.packages()
	return c.diff, nil
}

type comparison struct {
	a, b  reader
	limit int
	diff  guestdelta.Diff
}

// files merges the two sorted lists.
func (c *comparison) files(ctx context.Context) error {
	a, err := c.a.file()
	if err != nil {
		return err
	}
	b, err := c.b.file()
	if err != nil {
		return err
	}
	for a != nil || b != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if max(c.a.files, c.b.files) > maxFiles {
			c.diff.Files.Complete = false
			return nil
		}
		order := orderOf(a, b)
		if err := c.file(order, a, b); err != nil {
			return err
		}
		if order <= 0 {
			if a, err = c.a.file(); err != nil {
				return err
			}
		}
		if order >= 0 {
			if b, err = c.b.file(); err != nil {
				return err
			}
		}
	}
	return nil
}

// orderOf compares the paths of a and b. A list that has ended comes last.
func orderOf(a, b *agentv1.InventoryFile) int {
	switch {
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return comparePaths(a.Path, b.Path)
}

// file records the change of the first path, or of a path in both lists.
func (c *comparison) file(order int, a, b *agentv1.InventoryFile) error {
	d := &c.diff.Files
	d.Compared++
	switch before, after := versions(order, a, b); {
	case before == nil && after == nil:
	case after == nil:
		d.Counts.Removed++
		if len(d.Removed) < c.limit {
			d.Removed = append(d.Removed, fileOf(before))
			return c.a.ask(costOf(before))
		}
	case before == nil:
		d.Counts.Added++
		if len(d.Added) < c.limit {
			d.Added = append(d.Added, fileOf(after))
			return c.a.ask(costOf(after))
		}
	default:
		what := differences(before, after)
		if len(what) == 0 {
			return nil
		}
		d.Counts.Changed++
		if len(d.Changed) < c.limit {
			d.Changed = append(d.Changed, guestdelta.FileChange{Before: fileOf(before), After: fileOf(after), What: what})
			return c.a.ask(costOf(before) + costOf(after))
		}
	}
	return nil
}

// costOf returns the memory for a file in a list.
func costOf(f *agentv1.InventoryFile) int { return 128 + len(f.Path) + len(f.Target) }

// versions returns the file of each guest at a path, or nil for a missing one. An unlisted file is
// the same as in the image, and the other guest's entry describes the image's file.
func versions(order int, a, b *agentv1.InventoryFile) (before, after *agentv1.InventoryFile) {
	switch {
	case order < 0:
		before, after = a, a.GetBelow()
	case order > 0:
		before, after = b.GetBelow(), b
	default:
		before, after = a, b
	}
	if before.GetGone() {
		before = nil
	}
	if after.GetGone() {
		after = nil
	}
	return before, after
}

// keep appends while there is room.
func keep[T any](c *comparison, list []T, v T) []T {
	if len(list) < c.limit {
		list = append(list, v)
	}
	return list
}

// differences returns the names of the differing attributes. It ignores size and times of a
// directory, because they only reflect its entries.
func differences(a, b *agentv1.InventoryFile) []string {
	kind := func(f *agentv1.InventoryFile) uint32 { return f.Mode & unix.S_IFMT }
	if kind(a) != kind(b) {
		return []string{"type"}
	}
	folder := kind(a) == unix.S_IFDIR
	var what []string
	for _, d := range []struct {
		name    string
		differs bool
	}{
		{"size", !folder && a.Size != b.Size},
		{"mtime", !folder && a.MtimeNs != b.MtimeNs},
		{"ctime", !folder && a.CtimeNs != b.CtimeNs},
		{"mode", a.Mode != b.Mode},
		{"owner", a.Uid != b.Uid || a.Gid != b.Gid},
		{"target", string(a.Target) != string(b.Target)},
		{"device", a.Rdev != b.Rdev},
	} {
		if d.differs {
			what = append(what, d.name)
		}
	}
	return what
}

func fileOf(f *agentv1.InventoryFile) guestdelta.File {
	return guestdelta.File{Path: text(f.Path, maxPath), Mode: fileMode(f.Mode), Size: f.Size,
		Target: text(f.Target, maxTarget)}
}

// fileMode converts stat's mode into Go's.
func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	}
	for bit, add := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid,
		unix.S_ISVTX: fs.ModeSticky} {
		if m&bit != 0 {
			mode |= add
		}
	}
	return mode
}
