package kernelpkg

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/vm/boot/bzimage"
)

// Limits when reading a package.
const (
	maxFile     = 256 << 20 // bytes of one file, compressed or not
	maxPackage  = 1 << 30   // total bytes of a package's files
	maxEntries  = 100_000   // files in a package; Debian's largest has 5000
	maxSelected = 4096      // modules of one closure
)

// ErrNoModule is wrapped by errors about modules missing in the package.
var ErrNoModule = errors.New("no such kernel module")

// Package is an open kernel package. Its useful content is kept in memory.
type Package struct {
	// Release is the output of uname -r under this kernel: "6.12.95+deb12-cloud-amd64".
	Release string
	// Version is the Debian version, "6.12.95-1~bpo12+1"; empty for an unpacked tree.
	Version string

	image   []byte
	config  []byte
	builtin map[string]bool
	modules map[string]moduleFile
	lists   []file // of modules, for depmod
}

// moduleFile is a module in the package, possibly compressed.
type moduleFile struct {
	path string
	read func() ([]byte, error)
}

// Image returns the kernel as in the package (a bzImage), for QEMU to boot.
func (p *Package) Image() []byte { return p.image }

// Vmlinux returns the kernel as an ELF file, unpacked from the bzImage.
func (p *Package) Vmlinux(ctx context.Context) ([]byte, error) {
	return bzimage.Extract(ctx, "vmlinuz-"+p.Release, p.image)
}

// Config returns the value of a kernel configuration symbol: Config("VMGENID") is "y", "m", another value, or ""
// if it is not set.
func (p *Package) Config(symbol string) string {
	prefix := []byte("CONFIG_" + symbol + "=")
	lines := bufio.NewScanner(bytes.NewReader(p.config))
	for lines.Scan() {
		if v, ok := bytes.CutPrefix(lines.Bytes(), prefix); ok {
			return strings.Trim(string(v), `"`)
		}
	}
	return ""
}

// wants reports whether a package's file is needed, given its path without a leading slash.
func wants(name string) bool {
	dir, base := path.Split(name)
	switch {
	case dir == "boot/":
		return strings.HasPrefix(base, "vmlinuz-") || strings.HasPrefix(base, "config-")
	case !strings.HasPrefix(strings.TrimPrefix(name, "usr/"), "lib/modules/"):
		return false
	}
	return slices.Contains(moduleLists(), base) || moduleName(base) != ""
}

// moduleLists returns the names of the files from which depmod makes its index, besides modules.
func moduleLists() []string {
	return []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"}
}

// moduleName converts a file name to a module's name: "virtio-rng.ko.xz" is "virtio_rng". It returns "" if the
// file is not a module.
func moduleName(file string) string {
	stem, ext, ok := strings.Cut(file, ".ko")
	if !ok || stem == "" || !slices.Contains([]string{"", ".xz", ".zst", ".gz"}, ext) {
		return ""
	}
	return canonical(stem)
}

func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// file is a file from either kind of source: a path and a function to read it.
type file struct {
	name string
	read func() ([]byte, error)
}

// assemble makes a Package from the needed files of a source.
func assemble(files []file) (*Package, error) {
	p := &Package{builtin: map[string]bool{}, modules: map[string]moduleFile{}}
	if err := p.findImage(files); err != nil {
		return nil, err
	}
	for _, f := range files {
		dir, base := path.Split(f.name)
		switch {
		case dir == "boot/" && base == "config-"+p.Release:
			b, err := f.read()
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", f.name, err)
			}
			p.config = b
		case !strings.Contains("/"+dir, "/lib/modules/"+p.Release+"/"):
		case slices.Contains(moduleLists(), base):
			p.lists = append(p.lists, f)
			if base != "modules.builtin" {
				continue
			}
			if err := p.readBuiltin(f); err != nil {
				return nil, err
			}
		case moduleName(base) != "":
			p.modules[moduleName(base)] = moduleFile{path: f.name, read: f.read}
		}
	}
	if len(p.modules) == 0 {
		return nil, fmt.Errorf("kernel %s has no modules in lib/modules/%s", p.Release, p.Release)
	}
	return p, nil
}

func (p *Package) findImage(files []file) error {
	var found []string
	for _, f := range files {
		release, ok := strings.CutPrefix(f.name, "boot/vmlinuz-")
		if !ok {
			continue
		}
		b, err := f.read()
		if err != nil {
			return fmt.Errorf("read %s: %w", f.name, err)
		}
		found = append(found, release)
		p.Release, p.image = release, b
	}
	switch len(found) {
	case 1:
		return nil
	case 0:
		return errors.New("it has no boot/vmlinuz-*; it is no kernel image package " +
			"(or a meta package, that only depends on one)")
	}
	return fmt.Errorf("it has %d kernels (%s), want one", len(found), strings.Join(found, ", "))
}

func (p *Package) readBuiltin(f file) error {
	b, err := f.read()
	if err != nil {
		return fmt.Errorf("read %s: %w", f.name, err)
	}
	for line := range strings.Lines(string(b)) {
		if name := moduleName(path.Base(strings.TrimSpace(line))); name != "" {
			p.builtin[name] = true
		}
	}
	return nil
}
