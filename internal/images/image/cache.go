package image

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/filelock"
	"github.com/forkd/forkd/internal/sys/tempdir"
)

// cache stores parts of images by a key of all their inputs: DIR/KIND/KEY/, where entry.json is written last.
type cache struct {
	dir string
}

// entry is a finished part.
type entry struct {
	dir   string
	Files map[string]FileSum `json:"files"`
	// Extra holds additional facts for the part's user.
	Extra json.RawMessage `json:"extra,omitempty"`
}

const entryFile = "entry.json"

// Kinds of parts.
const (
	kindResolve = "resolve"
	kindKernel  = "kernel"
	kindRoot    = "root"
	kindInitrd  = "initrd"
	kindUpper   = "upper"
	kindModules = "modules"
)

var kinds = []string{kindResolve, kindKernel, kindRoot, kindInitrd, kindUpper, kindModules}

func openCache(dir string) (*cache, error) {
	dir, err := filepath.Abs(dir) // the tools use other working directories
	if err != nil {
		return nil, fmt.Errorf("open build cache: %w", err)
	}
	for _, kind := range kinds {
		if err := os.MkdirAll(filepath.Join(dir, kind), 0o755); err != nil {
			return nil, fmt.Errorf("open build cache: %w", err)
		}
		if err := sweep(filepath.Join(dir, kind)); err != nil {
			return nil, fmt.Errorf("open build cache: %w", err)
		}
	}
	return &cache{dir: dir}, nil
}

// lock waits until no other build uses the cache. The returned function releases it.
func (c *cache) lock(ctx context.Context, waiting func()) (func(), error) {
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock build cache: %w", err)
	}
	if err := filelock.Wait(ctx, f, waiting); err != nil {
		f.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for another build: %w", err)
		}
		return nil, fmt.Errorf("lock build cache: %w", err)
	}
	return func() { f.Close() }, nil
}

// key returns the digest of all inputs of a part.
func key(parts any) (string, error) {
	b, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("make cache key: %w", err)
	}
	return sum(b), nil
}

// get returns a part if it is complete. It checks sizes, but not digests.
func (c *cache) get(kind, key string) (entry, bool) {
	dir := filepath.Join(c.dir, kind, key)
	b, err := os.ReadFile(filepath.Join(dir, entryFile)) // #nosec G703 -- kind is a constant, key a digest
	if err != nil {
		return entry{}, false
	}
	var e entry
	if json.Unmarshal(b, &e) != nil {
		return entry{}, false
	}
	for name, want := range e.Files {
		if !filepath.IsLocal(name) {
			return entry{}, false
		}
		info, err := os.Stat(filepath.Join(dir, name)) // #nosec G703 -- the name stays below the folder
		if err != nil || info.Size() != want.Size {
			return entry{}, false
		}
	}
	e.dir = dir
	return e, true
}

// put adds a part: fill writes its files into dir and returns Extra. If fill fails, the part is removed.
func (c *cache) put(ctx context.Context, kind, key string,
	fill func(dir string) (extra any, err error)) (entry, error) {
	parent := filepath.Join(c.dir, kind)
	tmp, err := makeTemp(parent)
	if err != nil {
		return entry{}, fmt.Errorf("make cache entry: %w", err)
	}
	defer tmp.Remove()
	extra, err := fill(tmp.Path)
	if err != nil {
		return entry{}, err
	}
	e := entry{Files: map[string]FileSum{}}
	if e.Extra, err = json.Marshal(extra); err != nil {
		return entry{}, fmt.Errorf("make cache entry: %w", err)
	}
	files, err := os.ReadDir(tmp.Path)
	if err != nil {
		return entry{}, fmt.Errorf("make cache entry: %w", err)
	}
	for _, f := range files {
		if e.Files[f.Name()], err = sumFile(ctx, filepath.Join(tmp.Path, f.Name())); err != nil {
			return entry{}, fmt.Errorf("make cache entry: %w", err)
		}
	}
	b, err := json.Marshal(e)
	if err != nil {
		return entry{}, fmt.Errorf("make cache entry: %w", err)
	}
	if err := os.WriteFile(filepath.Join(tmp.Path, entryFile), b, 0o644); err != nil {
		return entry{}, fmt.Errorf("make cache entry: %w", err)
	}
	if err := publish(tmp, parent, key); err != nil {
		return entry{}, fmt.Errorf("make cache entry: %w", err)
	}
	e.dir = filepath.Join(parent, key)
	return e, nil
}

// prune removes entries that are neither linked to an image nor used by the build that just ended.
func (c *cache) prune(used map[string]bool) error {
	for _, kind := range kinds {
		entries, err := os.ReadDir(filepath.Join(c.dir, kind))
		if err != nil {
			return fmt.Errorf("prune build cache: %w", err)
		}
		for _, e := range entries {
			dir := filepath.Join(c.dir, kind, e.Name())
			if used[e.Name()] || !e.IsDir() || kind == kindResolve && fresh(dir) || linked(dir) {
				continue
			}
			if err := tempdir.RemoveTree(dir); err != nil {
				return fmt.Errorf("prune build cache: %w", err)
			}
		}
	}
	return nil
}

// fresh reports whether a resolution is recent and may belong to another recipe.
func fresh(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && time.Since(info.ModTime()) < 7*24*time.Hour
}

// linked reports whether a file of an entry has another link, in an image.
func linked(dir string) bool {
	found := false
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && d.Type().IsRegular() && unix.Stat(filepath.Join(dir, d.Name()), &st) == nil && st.Nlink > 1 {
			found = true
			return fs.SkipAll
		}
		return nil
	})
	return found
}
