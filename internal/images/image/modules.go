package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/images/debtool"
	"github.com/forkd/forkd/internal/images/kernelpkg"
)

// modprobePackage has modprobe and depmod.
const modprobePackage = "kmod"

var moduleRE = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// maxDiskDirs limits the directories of a recipe that lie directly on the writable disk.
const maxDiskDirs = 16

func (r *Recipe) checkModules() error {
	for _, m := range r.Modules {
		if !moduleRE.MatchString(m.Value) {
			return at(m.Line, "modules has %q, want a kernel module or one of %s", m.Value,
				strings.Join(kernelpkg.Sets(), ", "))
		}
	}
	return nil
}

func (r *Recipe) checkDiskDirs() error {
	if len(r.DiskDirs) > maxDiskDirs {
		return at(r.DiskDirs[maxDiskDirs].Line, "disk_dirs has more than %d directories", maxDiskDirs)
	}
	for i, d := range r.DiskDirs {
		if !cleanAbs(d.Value) || d.Value == "/" || reserved(d.Value) {
			return at(d.Line, "disk_dirs has %q, want a clean absolute path, not in /proc, /sys, /dev, /run or /tmp", d.Value)
		}
		for _, other := range r.DiskDirs[:i] {
			if within(d.Value, other.Value) || within(other.Value, d.Value) {
				return at(d.Line, "disk_dirs has %s and %s, and one contains the other", other.Value, d.Value)
			}
		}
	}
	return nil
}

// within reports whether a path is dir or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// moduleFiles returns the files of the recipe's kernel modules for the root, without depmod's index.
// All of them have to fit in memory.
func (b *build) moduleFiles(ctx context.Context) ([]rootFile, error) {
	if len(b.recipe.Modules) == 0 {
		return nil, nil
	}
	c, err := b.findKernel(ctx)
	if err != nil {
		return nil, err
	}
	k, err := key([]any{builderVersion, c, kernelpkg.GuestModules(), kernelpkg.Names(texts(b.recipe.Modules)...)})
	if err != nil {
		return nil, err
	}
	e, err := b.cached(ctx, kindModules, k, func(dir string) (any, error) { return b.unpackModules(ctx, c, dir) })
	if err != nil {
		return nil, err
	}
	var files []rootFile
	if err := json.Unmarshal(e.Extra, &files); err != nil {
		return nil, fmt.Errorf("read cache of modules: %w", err)
	}
	for i, f := range files {
		if files[i].Data, err = os.ReadFile(filepath.Join(e.dir, moduleEntry(i))); err != nil {
			return nil, fmt.Errorf("read cache of modules: %w", err)
		}
		if sum(files[i].Data) != f.Sum {
			return nil, fmt.Errorf("read cache of modules: %s is damaged: delete %s", f.Path, e.dir)
		}
	}
	return files, nil
}

// moduleEntry is the name of a file in the cache.
func moduleEntry(i int) string { return fmt.Sprintf("%05d", i) }

// unpackModules writes the modules to dir, and returns them without their content.
func (b *build) unpackModules(ctx context.Context, c kernelpkg.Candidate, dir string) ([]rootFile, error) {
	b.progress.begin(StepKernel, "modules of "+c.Package+" "+c.Version)
	deb, err := kernelpkg.Fetch(ctx, b.run, c, filepath.Join(b.cache.dir, "packages"))
	if err != nil {
		return nil, err
	}
	p, err := kernelpkg.OpenDeb(ctx, deb)
	if err != nil {
		return nil, err
	}
	files, err := p.Tree(texts(b.recipe.Modules)...)
	var missing *kernelpkg.MissingError
	if errors.As(err, &missing) {
		i := slices.IndexFunc(b.recipe.Modules, func(t Text) bool { return t.Value == missing.Name })
		where := ""
		if b.foreign == nil {
			where = b.recipe.place(b.recipe.Modules[max(i, 0)]) + ": "
		}
		return nil, fmt.Errorf("%w: %skernel %s has no module %s; modules takes names of modules, and the sets %s",
			ErrRecipe, where, p.Release, missing.Name, strings.Join(kernelpkg.Sets(), ", "))
	}
	if err != nil {
		return nil, err
	}
	out := make([]rootFile, len(files))
	for i, f := range files {
		if err := os.WriteFile(filepath.Join(dir, moduleEntry(i)), f.Data, 0o644); err != nil {
			return nil, fmt.Errorf("unpack modules: %w", err)
		}
		out[i] = rootFile{Path: "/usr/" + f.Path, Mode: 0o644, Sum: sum(f.Data)}
	}
	return out, nil
}

// indexed returns the modules for a foreign root, below /lib/modules, with depmod's index. It
// writes a tree in dir meanwhile.
func indexed(ctx context.Context, run debtool.Runner, modules []rootFile, dir string) ([]GuestFile, error) {
	if len(modules) == 0 {
		return nil, nil
	}
	tmp := filepath.Join(dir, "modules")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return nil, fmt.Errorf("index modules: %w", err)
	}
	defer os.RemoveAll(tmp)
	var out []GuestFile
	for _, m := range modules {
		path := strings.TrimPrefix(m.Path, "/usr")
		out = append(out, GuestFile{Path: path, Mode: 0o644, Data: m.Data})
		at := filepath.Join(tmp, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return nil, fmt.Errorf("index modules: %w", err)
		}
		if err := os.WriteFile(at, m.Data, 0o644); err != nil {
			return nil, fmt.Errorf("index modules: %w", err)
		}
	}
	release, _, _ := strings.Cut(strings.TrimPrefix(out[0].Path, "/lib/modules/"), "/")
	depmod := debtool.Command{Args: []string{"depmod", "-b", tmp, release}, Package: modprobePackage}
	if _, err := run(ctx, depmod); err != nil {
		return nil, fmt.Errorf("index modules: %w", err)
	}
	made, err := filepath.Glob(filepath.Join(tmp, "lib", "modules", release, "modules.*"))
	if err != nil {
		return nil, err
	}
	for _, at := range made {
		path := strings.TrimPrefix(at, tmp)
		if slices.ContainsFunc(out, func(f GuestFile) bool { return f.Path == path }) {
			continue // one of the kernel's own lists
		}
		b, err := os.ReadFile(at)
		if err != nil {
			return nil, fmt.Errorf("index modules: %w", err)
		}
		out = append(out, GuestFile{Path: path, Mode: 0o644, Data: b})
	}
	return out, nil
}
