package kernelpkg

import (
	"fmt"
	"path"
	"strings"

	"github.com/forkd/forkd/internal/images/initramfs"
)

// GuestModules returns the names of the kernel modules that a forkd guest needs. Modules skips the ones that are
// built in.
func GuestModules() []string {
	return []string{
		"virtio_mmio", // the bus of all devices
		"virtio_blk",
		"erofs", // the root, read only
		"ext4",  // for writes to it
		"overlay",
		"vsock",
		"vmw_vsock_virtio_transport",
		"virtio_rng",
		"virtio_net",
		"virtio_balloon", // returns free memory to the host
	}
}

// Modules returns the named modules and all their dependencies, uncompressed and in load order. It skips built-in
// modules. Each module occurs once.
func (p *Package) Modules(names ...string) ([]initramfs.Module, error) {
	r := resolver{p: p, done: map[string]bool{}, open: map[string]bool{}}
	for _, name := range names {
		if err := r.add(canonical(name), nil); err != nil {
			return nil, fmt.Errorf("collect modules of kernel %s: %w", p.Release, err)
		}
	}
	return r.out, nil
}

// resolver visits dependencies depth first, so that each one comes before the modules that need it.
type resolver struct {
	p    *Package
	done map[string]bool
	open map[string]bool // on the path from the root to here; meeting one again is a cycle
	out  []initramfs.Module
}

func (r *resolver) add(name string, by []string) error {
	if r.done[name] || r.p.builtin[name] {
		return nil
	}
	if r.open[name] {
		return fmt.Errorf("%s depends on itself (%s)", name, strings.Join(by, ", "))
	}
	f, ok := r.p.modules[name]
	if !ok {
		if len(by) > 0 {
			return fmt.Errorf("%w: %s (needed by %s)", ErrNoModule, name, by[len(by)-1])
		}
		return fmt.Errorf("%w: %s", ErrNoModule, name)
	}
	if len(r.done)+len(r.open) >= maxSelected {
		return fmt.Errorf("more than %d modules", maxSelected)
	}
	r.open[name] = true
	defer delete(r.open, name)
	module, err := f.load()
	if err != nil {
		return fmt.Errorf("read module %s: %w", f.path, err)
	}
	info, err := parseModinfo(module)
	if err != nil {
		return fmt.Errorf("read module %s: %w", f.path, err)
	}
	if err := r.addAll(name, info, append(by[:len(by):len(by)], name)); err != nil {
		return err
	}
	r.done[name] = true
	base, _, _ := strings.Cut(path.Base(f.path), ".ko")
	r.out = append(r.out, initramfs.Module{File: base + ".ko", Data: module})
	return nil
}

func (r *resolver) addAll(name string, info modinfo, by []string) error {
	for _, soft := range info.softPre {
		// A soft dependency may be an alias, or a module that is not built; either may be missing. The kernel's
		// own ones (libcrc32c wants crc32c) may even be circular; then the hard dependency takes precedence.
		if _, ok := r.p.modules[soft]; !ok {
			soft += "_generic" // an algorithm's name is an alias of its generic implementation (crc32c of ext4)
		}
		if _, ok := r.p.modules[soft]; !ok || r.open[soft] {
			continue
		}
		if err := r.add(soft, by); err != nil {
			return err
		}
	}
	for _, dep := range info.depends {
		if err := r.add(dep, by); err != nil {
			return err
		}
	}
	return nil
}

func (f moduleFile) load() ([]byte, error) {
	b, err := f.read()
	if err != nil {
		return nil, err
	}
	return unpackModule(f.path, b)
}
