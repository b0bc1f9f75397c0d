package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/guest/treetar"
)

// CopyFrom copies a file or a directory out of a sandbox. If source is missing, it returns an error
// with api.CodeNotFound. Target and links follow the same rules as in CopyTo. A hostile guest
// cannot make CopyFrom write outside the target: each directory is opened as an os.Root.
func (c *Client) CopyFrom(ctx context.Context, id, source, target string, opt CopyOptions) error {
	d := &downloader{of: c.tree(id, opt.User), opt: opt}
	from, err := d.of.stat(ctx, source)
	switch {
	case err != nil:
		return err
	case from.kind == kindMissing:
		return &Error{Code: api.CodeNotFound, Message: fmt.Sprintf("copy from %s:%s: no such file or directory", id, source)}
	case from.kind == kindOther:
		return &Error{Code: api.CodeInvalid, Message: fmt.Sprintf("copy from %s:%s: it is %s", id, source, from.what())}
	}
	target, existing, err := placeHere(id, source, target, from.kind == kindDir)
	if err != nil {
		return err
	}
	if existing != nil && !existing.Mode().IsRegular() && from.kind == kindFile {
		return d.into(ctx, source, target)
	}
	root, err := os.OpenRoot(filepath.Dir(target))
	if err != nil {
		return err
	}
	defer root.Close()
	to := place{root, filepath.Base(target), target}
	switch {
	case from.trees:
		return d.tree(ctx, source, to)
	case opt.Lossy != nil:
		opt.Lossy()
	}
	if from.kind == kindDir {
		return d.tally.end(d.dir(ctx, source, from, to))
	}
	return d.file(ctx, source, to, from.mode)
}

// placeHere returns the path of the copy of source, and the existing file if the user named it. It
// follows only the links the user named.
func placeHere(id, source, target string, dir bool) (string, fs.FileInfo, error) {
	st, err := os.Stat(target)
	switch {
	case err == nil && st.IsDir():
		name := path.Base(path.Clean("/" + source))
		if name == "/" {
			name = "root"
		}
		return filepath.Join(target, name), nil, nil
	case err == nil:
		real, err := filepath.EvalSymlinks(target)
		return real, st, err
	case !errors.Is(err, fs.ErrNotExist):
		return "", nil, err
	}
	if _, err := os.Lstat(target); err == nil {
		return "", nil, fmt.Errorf("copy from %s:%s: %s is a broken link", id, source, target)
	}
	parent := filepath.Dir(strings.TrimRight(target, "/"))
	if strings.HasSuffix(target, "/") && !dir {
		parent = filepath.Clean(target)
	}
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		return "", nil, &Error{
			Code: api.CodeNotFound, Message: fmt.Sprintf("copy from %s:%s: this host has no directory %s", id, source, parent),
			Reason: api.ReasonLocalDirectoryMissing, Details: map[string]string{"directory": parent}, cause: err,
		}
	}
	return filepath.Clean(target), nil, nil
}

// downloader copies a tree out of the guest.
type downloader struct {
	of    guestTree
	opt   CopyOptions
	tally tally
	// listed counts directory entries. The entries of all directories above the current one are in
	// memory.
	listed int
	above  []string // real guest paths of the directories above the current one
}

// place is a name in a directory of this host, with the path to show to people.
type place struct {
	root  *os.Root
	name  string
	shown string
}

// maxDepth limits the depth of a directory tree, which a hostile guest could make endless.
const maxDepth = 128

// maxListed limits the entries of a directory tree, which a hostile guest could make endless.
const maxListed = 1_000_000

// dir copies a directory. A failure of the directory itself counts as one failure.
func (d *downloader) dir(ctx context.Context, source string, from entry, to place) error {
	top := len(d.above) == 0
	sub, entries, err := d.open(ctx, source, from, to)
	if err != nil && top {
		return err // the copy has not begun
	}
	if stop := d.tally.took(err); stop != nil || err != nil {
		return stop
	}
	defer sub.Close()
	if d.listed += len(entries); d.listed > maxListed {
		return fmt.Errorf("copy from %s:%s: the tree has more than %d files, links and directories", d.of.id, source,
			maxListed)
	}
	d.above = append(d.above, realOf(from))
	defer func() { d.above = d.above[:len(d.above)-1] }()
	for _, e := range entries {
		// Use only the last element of the guest's path, and only as a name.
		name := path.Base(e.path)
		if name == "." || name == ".." || name == "/" || !filepath.IsLocal(name) || strings.ContainsRune(name,
			filepath.Separator) {
			return fmt.Errorf("copy from %s:%s: entry has the impossible name %q", d.of.id, source, e.path)
		}
		if err := d.entry(ctx, e, path.Join(source, name), place{sub, name, filepath.Join(to.shown, name)}); err != nil {
			return err
		}
	}
	return nil
}

func realOf(e entry) string {
	if e.link {
		return e.target
	}
	return e.path
}

// open lists a directory in the guest, and creates or opens its copy.
func (d *downloader) open(ctx context.Context, source string, from entry, to place) (*os.Root, []entry, error) {
	switch {
	case len(d.above) > maxDepth:
		return nil, nil, fmt.Errorf("copy from %s:%s: directories are nested more than %d deep", d.of.id, source, maxDepth)
	case from.link && slices.ContainsFunc(d.above, func(a string) bool {
		return a == from.target || strings.HasPrefix(a, from.target+"/")
	}):
		return nil, nil, fmt.Errorf("copy from %s:%s: it is a link to its own parent directory", d.of.id, source)
	}
	entries, err := d.of.listDir(ctx, source)
	if err != nil {
		return nil, nil, err
	}
	if err := to.root.Mkdir(to.name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, to.failed(err)
	}
	if st, err := to.root.Lstat(to.name); err != nil || !st.IsDir() {
		return nil, nil, errors.Join(to.inTheWay("a directory", st), err)
	}
	sub, err := to.root.OpenRoot(to.name)
	return sub, entries, err
}

func (d *downloader) entry(ctx context.Context, e entry, source string, to place) error {
	switch {
	case e.link && !d.opt.FollowLinks:
		return d.tally.took(to.link(e.text, treetar.Meta{}))
	case e.kind == kindDir:
		return d.dir(ctx, source, e, to)
	case e.kind == kindFile:
		return d.tally.took(d.file(ctx, source, to, e.mode))
	case e.link:
		return d.tally.took(fmt.Errorf("copy from %s:%s: it is %s", d.of.id, source, e.what()))
	}
	d.opt.skip(d.of.id+":"+source, "it is "+e.what())
	return nil
}

func (d *downloader) file(ctx context.Context, source string, to place, mode fs.FileMode) error {
	old, err := to.root.Lstat(to.name)
	if err == nil && !old.Mode().IsRegular() {
		return to.inTheWay("a file", old)
	}
	in, err := d.of.download(ctx, source)
	if err != nil {
		return d.failed(source, err)
	}
	defer in.Close()
	if err := to.write(filled(counting{in, d.opt.Progress}), treetar.Meta{Mode: mode}, old); err != nil {
		return d.failed(source, err)
	}
	return nil
}

// into writes to a special file named by the user, such as a terminal.
func (d *downloader) into(ctx context.Context, source, target string) (err error) {
	in, err := d.of.download(ctx, source)
	if err != nil {
		return d.failed(source, err)
	}
	defer in.Close()
	out, err := os.OpenFile(target, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, counting{in, d.opt.Progress}); err != nil {
		return d.failed(source, err)
	}
	return nil
}

func (d *downloader) failed(source string, err error) error {
	return fmt.Errorf("copy from %s:%s: %w", d.of.id, source, err)
}
