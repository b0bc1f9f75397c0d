package image

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
)

// maxExtends limits the chain of recipes below a recipe.
const maxExtends = 8

// extend inherits all unset fields from the extended recipe, which is checked separately.
func (r *Recipe) extend(depth int) error {
	if r.Extends.Value == "" {
		return nil
	}
	path := r.Extends.Value
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	if depth == maxExtends {
		return r.wrap(at(r.Extends.Line, "extends %s, the last of more than %d: does one extend itself?", path, maxExtends))
	}
	base, err := loadRecipe(path, depth+1)
	if errors.Is(err, ErrRecipe) {
		return err // it names the other recipe's file
	}
	if err != nil {
		return r.wrap(at(r.Extends.Line, "extends: %v", err))
	}
	r.base = base
	r.Packages = slices.Concat(base.Packages, r.Packages)
	r.Pip = slices.Concat(base.Pip, r.Pip)
	r.PipNoDeps = slices.Concat(base.PipNoDeps, r.PipNoDeps)
	r.Npm = slices.Concat(base.Npm, r.Npm)
	r.Modules = slices.Concat(base.Modules, r.Modules)
	r.DiskDirs = slices.Concat(base.DiskDirs, r.DiskDirs)
	r.Files = slices.Concat(base.Files, r.Files)
	r.Warm = slices.Concat(base.Warm, r.Warm)
	env := map[string]string{}
	maps.Copy(env, base.Env)
	maps.Copy(env, r.Env)
	r.Env = env
	inherit(&r.Suite, base.Suite)
	inherit(&r.Kernel, base.Kernel)
	inherit(&r.User, base.User)
	inherit(&r.Workdir, base.Workdir)
	inherit(&r.Start, base.Start)
	inherit(&r.Ready, base.Ready)
	inherit(&r.FirstUse, base.FirstUse)
	inherit(&r.MemoryMiB, base.MemoryMiB)
	inherit(&r.VCPUs, base.VCPUs)
	inherit(&r.Limits.OpenFiles, base.Limits.OpenFiles)
	inherit(&r.Limits.InotifyWatches, base.Limits.InotifyWatches)
	inherit(&r.Limits.InotifyInstances, base.Limits.InotifyInstances)
	inherit(&r.Compression, base.Compression)
	inherit(&r.Disk, base.Disk)
	return nil
}

// inherit sets a field that is unset.
func inherit[T comparable](own *T, base T) {
	var unsaid T
	if *own == unsaid {
		*own = base
	}
}

// wrap adds the recipe's file to an error.
func (r *Recipe) wrap(err error) error { return fmt.Errorf("%w: %s%w", ErrRecipe, r.path, err) }

// place returns FILE:LINE of one of the recipe's packages. It may be in an extended recipe.
func (r *Recipe) place(p Text) string {
	owner := r
	for b := r.base; b != nil; b = b.base {
		if slices.Contains(slices.Concat(b.Packages, b.pypi(), b.Npm, b.Modules), p) {
			owner = b
		}
	}
	return fmt.Sprintf("%s:%d", owner.path, p.Line)
}
