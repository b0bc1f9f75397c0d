package appliance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/images/debtool"
	"github.com/forkd/forkd/internal/images/initramfs"
	"github.com/forkd/forkd/internal/images/kernelpkg"
	"github.com/forkd/forkd/internal/sys/tempdir"
)

// kernel holds the parts of a kernel package needed by the appliance.
type kernel struct {
	release string
	image   string // path of the file to boot
	modules []initramfs.Module
}

// imageName is the kernel's file name in the cache. The file is an ELF file if the kernel can be entered directly
// (PVH), which saves two seconds of unpacking in an emulated boot.
const imageName = "kernel"

// kernelCache stores the needed parts of a package, because unpacking one takes seconds and would delay a start.
// Its file names are part of the format.
type kernelCache struct {
	dir      string
	packages string // directory for downloaded packages
	which    string // in the format of kernelpkg.Find; if empty, the machine's default kernel
}

// kernelIndex describes the cache's content. It is written last.
type kernelIndex struct {
	Release string   `json:"release"`
	Modules []string `json:"modules"` // file names in load order
}

// findKernel returns the appliance's kernel from the cache, or from a package downloaded with the host's apt.
// which is as in kernelCache.
func findKernel(ctx context.Context, which string, progress func(string)) (*kernel, error) {
	cache, err := newKernelCache(which)
	if err != nil {
		return nil, err
	}
	k, err := cache.load()
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return k, err
	}
	progress("fetching and unpacking the kernel package (once)")
	pkg, err := cache.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("get the appliance's kernel: %w", err)
	}
	if err := cache.store(ctx, pkg); err != nil {
		return nil, fmt.Errorf("unpack the appliance's kernel: %w", err)
	}
	return cache.load()
}

// bootImage returns the kernel in the form for QEMU.
func bootImage(ctx context.Context, pkg *kernelpkg.Package) ([]byte, error) {
	if pkg.Config("PVH") == "y" {
		return pkg.Vmlinux(ctx)
	}
	return pkg.Image(), nil
}

func newKernelCache(which string) (kernelCache, error) {
	root, err := cacheRoot()
	if err != nil {
		return kernelCache{}, err
	}
	return kernelCache{
		dir:      filepath.Join(root, "machine", "kernel-"+kernelCacheKey(which)),
		packages: filepath.Join(root, "kernels"),
		which:    which,
	}, nil
}

func (c kernelCache) open(ctx context.Context) (*kernelpkg.Package, error) {
	found, err := kernelpkg.Find(ctx, debtool.Run, c.which)
	if err != nil {
		return nil, err
	}
	path, err := kernelpkg.Fetch(ctx, debtool.Run, found, c.packages)
	if err != nil {
		return nil, err
	}
	return kernelpkg.OpenDeb(ctx, path)
}

// kernelCacheKey returns a key for the kernel and the set of modules.
func kernelCacheKey(which string) string {
	of := append(slices.Clone(moduleNames), imageName)
	if which != "" {
		of = append(of, which)
	}
	sum := sha256.Sum256([]byte(strings.Join(of, " ")))
	return hex.EncodeToString(sum[:6])
}

func (c kernelCache) index() (index kernelIndex, err error) {
	b, err := os.ReadFile(filepath.Join(c.dir, "index.json"))
	if err != nil {
		return index, err
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return index, fmt.Errorf("decode %s: %w", c.dir, err)
	}
	return index, nil
}

func (c kernelCache) load() (*kernel, error) {
	index, err := c.index()
	if err != nil {
		return nil, err
	}
	k := &kernel{release: index.Release, image: filepath.Join(c.dir, imageName)}
	for _, name := range index.Modules {
		data, err := os.ReadFile(filepath.Join(c.dir, filepath.Base(name)))
		if err != nil {
			return nil, err
		}
		k.modules = append(k.modules, initramfs.Module{File: filepath.Base(name), Data: data})
	}
	return k, nil
}

// store writes the cache under a temporary name, so that it never exists in part.
func (c kernelCache) store(ctx context.Context, pkg *kernelpkg.Package) error {
	modules, err := pkg.Modules(moduleNames...)
	if err != nil {
		return err
	}
	image, err := bootImage(ctx, pkg)
	if err != nil {
		return err
	}
	index := kernelIndex{Release: pkg.Release}
	files := map[string][]byte{imageName: image}
	for _, m := range modules {
		index.Modules = append(index.Modules, m.File)
		files[m.File] = m.Data
	}
	if files["index.json"], err = json.Marshal(index); err != nil {
		return err
	}
	return c.write(files)
}

// partPrefix begins the name of a folder of the cache that is not whole.
const partPrefix = ".kernel-"

func (c kernelCache) write(files map[string][]byte) error {
	parent := filepath.Dir(c.dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	if err := tempdir.Sweep(parent, partPrefix, tempdir.RemoveTree); err != nil {
		return err
	}
	temp, err := tempdir.Make(parent, partPrefix)
	if err != nil {
		return err
	}
	defer temp.Remove()
	tmp := temp.Path
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), data, 0o644); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, c.dir); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("keep kernel: %w", err)
	}
	return nil
}
