package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/api"
)

// CopyOptions changes how files are copied.
type CopyOptions struct {
	// User is whose files they are in the guest; empty means the image's user.
	User string
	// Progress is told the bytes of each piece that went over; may be nil.
	Progress func(n int)
}

// CopyTo copies a file or a directory into a sandbox. As with cp -r, a target
// that is a directory gets the source inside it; else the target is the copy.
// Links are followed; what is neither file nor directory is an error.
func (c *Client) CopyTo(ctx context.Context, id, source, target string, opt CopyOptions) error {
	st, err := os.Stat(source)
	if err != nil {
		return err
	}
	at, err := c.stat(ctx, id, target, opt.User)
	if err != nil {
		return err
	}
	if at.kind == kindDir || strings.HasSuffix(target, "/") && !st.IsDir() {
		abs, err := filepath.Abs(source) // "." has a name too
		if err != nil {
			return err
		}
		target = path.Join(target, filepath.Base(abs))
	}
	up := &uploader{c: c, id: id, opt: opt}
	if err := up.add(ctx, source, target); err != nil {
		return err
	}
	return up.markExecutable(ctx)
}

// uploader copies a tree into the guest.
type uploader struct {
	c          *Client
	id         string
	opt        CopyOptions
	executable []string // uploads come out as 0644
}

func (u *uploader) add(ctx context.Context, source, target string) error {
	st, err := os.Stat(source)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return u.addDir(ctx, source, target)
	case !st.Mode().IsRegular():
		return fmt.Errorf("copy %s: it is neither a file nor a directory", source)
	}
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	if st.Mode()&0o111 != 0 {
		u.executable = append(u.executable, target)
	}
	if err := u.c.Upload(ctx, u.id, target, u.opt.User, counting{f, u.opt.Progress}); err != nil {
		return fmt.Errorf("copy to %s:%s: %w", u.id, target, err)
	}
	return nil
}

func (u *uploader) addDir(ctx context.Context, source, target string) error {
	if err := u.c.makeDir(ctx, u.id, target, u.opt.User); err != nil {
		return err
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := u.add(ctx, filepath.Join(source, e.Name()), path.Join(target, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// markExecutable is done in few calls, each within what a command line holds.
func (u *uploader) markExecutable(ctx context.Context) error {
	const most = 500
	for names := u.executable; len(names) > 0; {
		n := min(most, len(names))
		var complaint bytes.Buffer
		st, err := u.c.ExecStream(ctx, u.id, ExecOptions{
			Args: append([]string{"chmod", "0755", "--"}, names[:n]...), User: u.opt.User, Stderr: &complaint,
		})
		if err != nil {
			return err
		}
		if st.ExitCode != 0 {
			return &Error{Code: api.CodeInternal, Message: fmt.Sprintf("mark files in %s executable: %s", u.id, strings.TrimSpace(complaint.String()))}
		}
		names = names[n:]
	}
	return nil
}

// CopyFrom copies a file or a directory out of a sandbox. The target follows
// the same rule as CopyTo's. Nothing the guest answers can make it write outside
// the target: directories are written through os.Root.
func (c *Client) CopyFrom(ctx context.Context, id, source, target string, opt CopyOptions) error {
	from, err := c.stat(ctx, id, source, opt.User)
	switch {
	case err != nil:
		return err
	case from.kind == kindMissing:
		return &Error{Code: api.CodeNotFound, Message: fmt.Sprintf("copy from %s:%s: no such file or directory", id, source)}
	}
	st, err := os.Stat(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && st.IsDir() {
		name := path.Base(path.Clean("/" + source))
		if name == "/" {
			name = "root"
		}
		target = filepath.Join(target, name)
	}
	// The last part of the target is ours to make; the part above must exist.
	root, err := os.OpenRoot(filepath.Dir(target))
	if err != nil {
		return err
	}
	defer root.Close()
	d := &downloader{c: c, id: id, opt: opt, root: root}
	if from.kind == kindDir {
		return d.dir(ctx, source, filepath.Base(target), 0)
	}
	return d.file(ctx, source, filepath.Base(target), from.mode)
}

// downloader copies a tree out of the guest.
type downloader struct {
	c    *Client
	id   string
	opt  CopyOptions
	root *os.Root
}

// maxDepth ends a directory tree that a hostile guest makes endless.
const maxDepth = 128

func (d *downloader) dir(ctx context.Context, source, target string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("copy from %s:%s: directories are nested more than %d deep", d.id, source, maxDepth)
	}
	if err := d.root.Mkdir(target, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := d.c.listDir(ctx, d.id, source, d.opt.User)
	if err != nil {
		return err
	}
	for _, e := range entries {
		// Only the last part of what the guest says, and that only as a name.
		name := path.Base(e.path)
		if name == "." || name == ".." || name == "/" || !filepath.IsLocal(name) || strings.ContainsRune(name, filepath.Separator) {
			return fmt.Errorf("copy from %s:%s: entry has the impossible name %q", d.id, source, e.path)
		}
		if err := d.entry(ctx, e, path.Join(source, name), filepath.Join(target, name), depth); err != nil {
			return err
		}
	}
	return nil
}

func (d *downloader) entry(ctx context.Context, e entry, source, target string, depth int) error {
	switch e.kind {
	case kindDir:
		return d.dir(ctx, source, target, depth+1)
	case kindLink:
		// os.Root refuses to follow it out of the target later on.
		if err := d.root.Symlink(e.target, target); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	return d.file(ctx, source, target, e.mode)
}

func (d *downloader) file(ctx context.Context, source, target string, mode uint32) (err error) {
	in, err := d.c.Download(ctx, d.id, source, d.opt.User)
	if err != nil {
		return fmt.Errorf("copy from %s:%s: %w", d.id, source, err)
	}
	defer in.Close()
	out, err := d.root.OpenFile(target, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644|fs.FileMode(mode)&0o111)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, counting{in, d.opt.Progress}); err != nil {
		return fmt.Errorf("copy from %s:%s: %w", d.id, source, err)
	}
	return nil
}

// counting reports what is read through it.
type counting struct {
	io.Reader
	tell func(n int)
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if n > 0 && c.tell != nil {
		c.tell(n)
	}
	return n, err
}
