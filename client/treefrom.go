package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/treetar"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// tree copies a file or a directory out of the guest as one stream. The guest chooses all of its
// content.
func (d *downloader) tree(ctx context.Context, source string, to place) error {
	at := d.of.treeURL(source, d.opt)
	resp, err := d.of.conn.send(ctx, http.MethodGet, at, nil, http.Header{"Accept-Encoding": {"identity"}})
	if err != nil {
		return d.failed(source, err)
	}
	defer resp.Body.Close()
	total, err := strconv.ParseInt(resp.Header.Get(agentproto.HeaderTreeBytes), 10, 64)
	if err == nil && total > 0 && d.opt.Total != nil {
		d.opt.Total(total)
	}
	bounds := treetar.Bounds{Depth: maxDepth, Entries: maxListed}
	top := &hereDir{root: to.root, shown: filepath.Dir(to.shown)}
	err = treetar.Unpack(ctx, resp.Body, top, to.name, bounds, treetar.Tally{
		Copied:   func() { d.tally.copied++; d.opt.arrived() },
		Progress: d.opt.Progress,
		Failed: func(name string, err error) error {
			return d.tally.took(d.failed(path.Join(source, name), err))
		},
		Skipped: func(name, why string) { d.opt.skip(d.of.id+":"+path.Join(source, name), why) },
	})
	if err != nil && !endsCopy(err) {
		err = d.failed(source, err)
	}
	return d.tally.end(err)
}

// treeURL returns the URL for reading and writing a tree.
func (t guestTree) treeURL(path string, opt CopyOptions) string {
	at := strings.Replace(t.url(path), "/agent/files?", "/agent/files/tree?", 1)
	if opt.FollowLinks {
		at += "&follow=1"
	}
	if opt.Total != nil {
		at += "&total=1"
	}
	return at
}

// hereDir is a directory of this host into which a tree is unpacked.
type hereDir struct {
	root  *os.Root
	shown string
	tree  *hereDir // the tree's top directory; nil above it
	in    string   // path in the tree; empty for the top directory
	// made is the mode after the umask if the copy created the directory. It is 0 if the directory
	// existed.
	made fs.FileMode
}

var _ treetar.Target = (*hereDir)(nil)

func (d *hereDir) place(name string) (place, error) {
	if !filepath.IsLocal(name) || strings.ContainsRune(name, filepath.Separator) {
		return place{}, fmt.Errorf("%s cannot be a name on this host", guesttext.Of(name))
	}
	return place{d.root, name, filepath.Join(d.shown, name)}, nil
}

// Dir implements treetar.Target. The owner has all rights until the directory is filled.
func (d *hereDir) Dir(name string, m treetar.Meta) (treetar.Target, error) {
	to, err := d.place(name)
	if err != nil {
		return nil, err
	}
	made := d.root.Mkdir(name, m.Mode|0o700)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return nil, to.failed(made)
	}
	st, err := d.root.Lstat(name)
	if err != nil || !st.IsDir() {
		return nil, errors.Join(to.inTheWay("a directory", st), err)
	}
	sub := &hereDir{shown: to.shown}
	if sub.root, err = d.root.OpenRoot(name); err != nil {
		return nil, to.failed(err)
	}
	if made == nil {
		sub.made = st.Mode().Perm()
	}
	if d.tree == nil {
		sub.tree = sub
		return sub, nil
	}
	sub.tree, sub.in = d.tree, path.Join(d.in, name)
	return sub, nil
}

// File implements treetar.Target.
func (d *hereDir) File(name string, m treetar.Meta, c *treetar.Content) error {
	to, err := d.place(name)
	if err != nil {
		return err
	}
	old, err := d.root.Lstat(name)
	if err == nil && !old.Mode().IsRegular() {
		return to.inTheWay("a file", old)
	}
	return to.write(func(f *os.File) error { return c.WriteTo(f) }, m, old)
}

// SymLink implements treetar.Target.
func (d *hereDir) SymLink(name, text string, m treetar.Meta) error {
	to, err := d.place(name)
	if err != nil {
		return err
	}
	return to.link(text, m)
}

// HardLink implements treetar.Target. An os.Root follows links that stay inside it, so the path
// must have no links.
func (d *hereDir) HardLink(name string, first []string) error {
	to, err := d.place(name)
	if err != nil {
		return err
	}
	for i := range first {
		at := filepath.Join(first[:i+1]...)
		st, err := d.tree.root.Lstat(at)
		if err != nil {
			return to.failed(err)
		}
		if last := i == len(first)-1; !last && !st.IsDir() || last && !st.Mode().IsRegular() {
			return fmt.Errorf("it is a hard link to %s, which was not received", guesttext.Of(at))
		}
	}
	if old, err := d.root.Lstat(name); err == nil && !old.Mode().IsRegular() {
		return to.inTheWay("a file", old)
	}
	part := partName()
	if err := d.tree.root.Link(filepath.Join(first...), filepath.Join(d.in, part)); err != nil {
		return to.failed(err)
	}
	err = d.root.Rename(part, name)
	_ = d.root.Remove(part) // a rename to another name of the same file keeps the old name
	return to.failed(err)
}

// Finish implements treetar.Target.
func (d *hereDir) Finish(m treetar.Meta) error {
	defer d.root.Close()
	self := place{d.root, ".", d.shown}
	if mode := d.made & m.Mode; d.made != 0 && mode != d.made {
		if err := d.root.Chmod(".", mode); err != nil {
			return self.failed(err)
		}
	}
	return self.failed(self.dated(".", m))
}
