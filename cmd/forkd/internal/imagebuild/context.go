package imagebuild

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

const (
	maxIgnore  = 1 << 20   // bytes of .dockerignore
	maxEntries = 1_000_000 // files of one COPY
)

// Context is the folder with the files for COPY and ADD. Nothing outside of it is read.
type Context struct {
	dir    string
	root   *os.Root
	ignore *patternmatcher.PatternMatcher
}

// OpenContext opens a folder. dockerfile is the path of the Dockerfile: NAME.dockerignore beside it
// replaces the folder's .dockerignore. The caller closes the context.
func OpenContext(dir, dockerfile string) (*Context, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open build context: %w", err)
	}
	c := &Context{dir: dir, root: root}
	for _, name := range []string{dockerfile + ".dockerignore", filepath.Join(dir, ".dockerignore")} {
		b, err := readLimited(name, maxIgnore)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var patterns []string
		if err == nil {
			patterns, err = ignorefile.ReadAll(bytes.NewReader(b))
		}
		if err == nil {
			c.ignore, err = patternmatcher.New(patterns)
		}
		if err != nil {
			root.Close()
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		break
	}
	return c, nil
}

// Close closes the context.
func (c *Context) Close() error { return c.root.Close() }

func readLimited(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	return b, err
}

// ignored reports whether .dockerignore excludes a path, which is relative to the context.
func (c *Context) ignored(name string) (bool, error) {
	if c.ignore == nil || name == "." {
		return false, nil
	}
	return c.ignore.MatchesOrParentMatches(filepath.FromSlash(name))
}

// find returns the paths of a source, relative to the context. A pattern may have several.
func (c *Context) find(source string) ([]string, error) {
	name := strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(source)), "/")
	if name == "" {
		return []string{"."}, nil
	}
	names := []string{name}
	if strings.ContainsAny(name, "*?[") {
		var err error
		if names, err = fs.Glob(c.root.FS(), name); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
	}
	var out []string
	for _, n := range names {
		skip, err := c.ignored(n)
		if err != nil {
			return nil, err
		}
		st, missing := c.root.Stat(n)
		if missing != nil || skip && (!st.IsDir() || !c.ignore.Exclusions()) {
			continue // .dockerignore may include parts of an excluded folder
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s is not in the build context %s, or .dockerignore excludes it", source, c.dir)
	}
	return out, nil
}

// payload is a staged copy of the files of one COPY or ADD.
type payload struct {
	dir string // on this host; removed by remove
	// single is set for one file, which may be renamed by its destination.
	single  bool
	entries int
}

func newPayload() (*payload, error) {
	dir, err := os.MkdirTemp("", "forkd-build-")
	return &payload{dir: dir}, err
}

func (p *payload) remove() { _ = os.RemoveAll(p.dir) }

// stage copies the sources to a payload. excluded are further patterns, of COPY --exclude.
func (c *Context) stage(p *payload, sources, excluded []string) error {
	var without *patternmatcher.PatternMatcher
	if len(excluded) > 0 {
		var err error
		if without, err = patternmatcher.New(excluded); err != nil {
			return err
		}
	}
	for _, source := range sources {
		names, err := c.find(source)
		if err != nil {
			return err
		}
		for _, name := range names {
			st, err := c.root.Stat(name)
			if err != nil {
				return err
			}
			p.single = len(sources) == 1 && len(names) == 1 && !st.IsDir()
			if err := c.stageOne(p, name, st.IsDir(), without); err != nil {
				return fmt.Errorf("%s: %w", source, err)
			}
		}
	}
	return nil
}

// stageOne copies a file under its base name, or the content of a folder.
func (c *Context) stageOne(p *payload, name string, dir bool, without *patternmatcher.PatternMatcher) error {
	if !dir {
		st, err := c.root.Stat(name)
		if err != nil {
			return err
		}
		return c.copy(p, name, path.Base(name), st)
	}
	return fs.WalkDir(c.root.FS(), name, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(filepath.FromSlash(name), filepath.FromSlash(at))
		if err != nil || rel == "." {
			return err
		}
		skip, err := c.ignored(at)
		if err == nil && !skip && without != nil {
			skip, err = without.MatchesOrParentMatches(rel)
		}
		switch {
		case err != nil:
			return err
		case skip && d.IsDir() && (c.ignore == nil || !c.ignore.Exclusions()):
			return fs.SkipDir
		case skip:
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		return c.copy(p, at, filepath.ToSlash(rel), st)
	})
}

// copy copies one object of the context to the payload.
func (c *Context) copy(p *payload, name, rel string, st fs.FileInfo) error {
	if p.entries++; p.entries > maxEntries {
		return fmt.Errorf("more than %d files", maxEntries)
	}
	to := filepath.Join(p.dir, filepath.FromSlash(rel))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case st.IsDir():
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		return os.Chmod(to, st.Mode().Perm()|0o700)
	case st.Mode()&fs.ModeSymlink != 0:
		text, err := c.root.Readlink(name)
		if err != nil {
			return err
		}
		return os.Symlink(text, to)
	case !st.Mode().IsRegular():
		return nil // sockets, FIFOs and devices
	}
	from, err := c.root.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	return writeFile(to, from, st)
}

// writeFile writes a file with the permissions and the time of another.
func writeFile(to string, from io.Reader, st fs.FileInfo) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Chmod(to, st.Mode().Perm()), os.Chtimes(to, st.ModTime(), st.ModTime()))
}

// chmod gives all files and folders of the payload the same permissions.
func (p *payload) chmod(mode fs.FileMode) error {
	return filepath.WalkDir(p.dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == p.dir || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return os.Chmod(at, mode) // #nosec G302 G122 -- the mode is of the Dockerfile; the folder is ours alone
	})
}

// digest returns a digest of names, types, permissions and content. Times do not count.
func (p *payload) digest() (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(p.dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == p.dir {
			return err
		}
		rel, err := filepath.Rel(p.dir, at)
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %v ", filepath.ToSlash(rel), st.Mode())
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			text, err := os.Readlink(at)
			fmt.Fprintf(h, "%q\n", text)
			return err
		case d.IsDir():
			fmt.Fprintln(h)
			return nil
		}
		sum, err := digestFile(at)
		fmt.Fprintln(h, sum)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

func digestFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// top returns the names of the payload's top level.
func (p *payload) top() ([]string, error) {
	list, err := os.ReadDir(p.dir)
	var out []string
	for _, d := range list {
		out = append(out, d.Name())
	}
	slices.Sort(out)
	return out, err
}

// write adds a file with this content.
func (p *payload) write(name, content string) error {
	return os.WriteFile(filepath.Join(p.dir, path.Base(name)), []byte(content), 0o644) // #nosec G306 -- as COPY does
}
