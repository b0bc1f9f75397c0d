package client

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/guest/treetar"
)

// CopyTo copies a file or a directory into a sandbox. If the target is a directory, CopyTo creates
// the copy inside it, as cp does. Otherwise the target is the copy, and its directory must exist.
// If source itself is a link, CopyTo follows it. It copies links inside a directory as links. If
// parts of a tree could not be copied, CopyTo returns a *CopyError.
func (c *Client) CopyTo(ctx context.Context, id, source, target string, opt CopyOptions) error {
	st, err := os.Stat(source)
	if err != nil {
		return err
	}
	to := c.tree(id, opt.User)
	target, trees, err := to.placeIn(ctx, source, target, st.IsDir())
	if err != nil {
		return err
	}
	up := &uploader{to: to, opt: opt}
	switch {
	case trees && (st.IsDir() || st.Mode().IsRegular()):
		return up.tree(ctx, source, target)
	case !trees && opt.Lossy != nil:
		opt.Lossy()
	}
	if st.IsDir() {
		return up.tally.end(up.dir(ctx, source, target, st))
	}
	return up.file(ctx, source, target, st)
}

// placeIn returns the path of the copy of source, and whether the agent accepts whole trees.
func (t guestTree) placeIn(ctx context.Context, source, target string, dir bool) (_ string, trees bool, _ error) {
	at, err := t.stat(ctx, target)
	if err != nil {
		return "", false, err
	}
	if at.kind == kindDir {
		abs, err := filepath.Abs(source) // "." has a name too
		return path.Join(target, filepath.Base(abs)), at.trees, err
	}
	if at.kind == kindMissing {
		if dir {
			target = strings.TrimRight(target, "/")
		}
		return target, at.trees, t.needParent(ctx, target)
	}
	return target, at.trees, nil
}

// uploader copies a tree into the guest.
type uploader struct {
	to    guestTree
	opt   CopyOptions
	tally tally
	above []fs.FileInfo // the directories above the current one
}

// add copies one entry of a directory of the tree, of any type.
func (u *uploader) add(ctx context.Context, source, target string) error {
	look := os.Lstat
	if u.opt.FollowLinks {
		look = os.Stat
	}
	st, err := look(source)
	switch {
	case err != nil:
		return u.tally.took(err)
	case st.IsDir():
		return u.dir(ctx, source, target, st)
	case st.Mode()&fs.ModeSymlink != 0:
		return u.tally.took(u.link(ctx, source, target))
	case !st.Mode().IsRegular():
		u.opt.skip(source, "it is "+treetar.Special(st.Mode()))
		return nil
	}
	return u.tally.took(u.file(ctx, source, target, st))
}

func (u *uploader) file(ctx context.Context, source, target string, st fs.FileInfo) error {
	f, err := here{}.Open(source, st)
	if err != nil {
		return err
	}
	defer f.Close()
	mode := fs.FileMode(0)
	if st.Mode().IsRegular() {
		mode = st.Mode().Perm()
	}
	if err := u.to.upload(ctx, target, mode, counting{f, u.opt.Progress}); err != nil {
		return u.failed(target, err)
	}
	return nil
}

func (u *uploader) link(ctx context.Context, source, target string) error {
	text, err := os.Readlink(source)
	if err != nil {
		return err
	}
	if err := u.to.makeLink(ctx, target, text); err != nil {
		return u.failed(target, err)
	}
	return nil
}

func (u *uploader) failed(target string, err error) error {
	return fmt.Errorf("copy to %s:%s: %w", u.to.id, target, err)
}

func (u *uploader) dir(ctx context.Context, source, target string, st fs.FileInfo) error {
	if slices.ContainsFunc(u.above, func(a fs.FileInfo) bool { return os.SameFile(a, st) }) {
		return u.tally.took(fmt.Errorf("copy %s: it is a link to its own parent directory", source))
	}
	u.above = append(u.above, st)
	defer func() { u.above = u.above[:len(u.above)-1] }()
	entries, err := os.ReadDir(source)
	if err == nil {
		err = u.to.makeDir(ctx, target)
	}
	if err != nil && len(u.above) == 1 {
		return err // the copy has not begun
	}
	if stop := u.tally.took(err); stop != nil || err != nil {
		return stop
	}
	for _, e := range entries {
		if err := u.add(ctx, filepath.Join(source, e.Name()), path.Join(target, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
