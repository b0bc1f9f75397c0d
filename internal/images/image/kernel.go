package image

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/internal/images/initramfs"
	"github.com/forkd/forkd/internal/images/kernelpkg"
)

const orderFile = "order" // lists the modules of a kernel's cache entry

// kernelPart finds, downloads and unpacks the recipe's kernel: vmlinux and the modules, as files of a cache
// entry.
func (b *build) kernelPart(ctx context.Context) (entry, KernelInfo, error) {
	c, err := b.findKernel(ctx)
	if err != nil {
		return entry{}, KernelInfo{}, err
	}
	k, err := key([]any{builderVersion, c, kernelpkg.GuestModules()})
	if err != nil {
		return entry{}, KernelInfo{}, err
	}
	e, cached := b.cache.get(kindKernel, k)
	if !cached {
		b.progress.begin(StepKernel, c.Package+" "+c.Version)
		e, err = b.cache.put(ctx, kindKernel, k, func(dir string) (any, error) { return b.unpackKernel(ctx, c, dir) })
		if err != nil {
			return entry{}, KernelInfo{}, err
		}
	}
	b.used[k] = true
	info := KernelInfo{Package: c.Package, Version: c.Version}
	if err := json.Unmarshal(e.Extra, &info.Release); err != nil {
		return entry{}, KernelInfo{}, fmt.Errorf("read kernel cache: %w", err)
	}
	b.progress.done(StepKernel, cached, info.Release)
	return e, info, nil
}

// findKernel asks apt once for each state of its lists.
func (b *build) findKernel(ctx context.Context) (kernelpkg.Candidate, error) {
	k, err := key([]any{builderVersion, "kernel", b.recipe.Kernel, b.aptState})
	if err != nil {
		return kernelpkg.Candidate{}, err
	}
	var c kernelpkg.Candidate
	e, err := b.cached(ctx, kindResolve, k, func(string) (any, error) {
		return kernelpkg.Find(ctx, b.run, b.recipe.Kernel)
	})
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(e.Extra, &c); err != nil {
		return c, fmt.Errorf("read kernel cache: %w", err)
	}
	return c, nil
}

func (b *build) unpackKernel(ctx context.Context, c kernelpkg.Candidate, dir string) (release string, err error) {
	deb, err := kernelpkg.Fetch(ctx, b.run, c, filepath.Join(b.cache.dir, "packages"))
	if err != nil {
		return "", err
	}
	b.progress.begin(StepKernel, "unpack "+filepath.Base(deb))
	p, err := kernelpkg.OpenDeb(ctx, deb)
	if err != nil {
		return "", err
	}
	vmlinux, err := p.Vmlinux(ctx)
	if err != nil {
		return "", err
	}
	modules, err := p.Modules(kernelpkg.GuestModules()...)
	if err != nil {
		return "", err
	}
	var order strings.Builder
	files := map[string][]byte{KernelFile: vmlinux}
	for _, m := range modules {
		order.WriteString(m.File + "\n")
		files[m.File] = m.Data
	}
	files[orderFile] = []byte(order.String())
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", fmt.Errorf("unpack kernel: %w", err)
		}
	}
	return p.Release, nil
}

// initrdPart packs the agent and the kernel's modules.
func (b *build) initrdPart(ctx context.Context, kernel entry) (entry, error) {
	agent, err := os.ReadFile(b.agent)
	if err != nil {
		return entry{}, fmt.Errorf("read agent: %w (make build leaves it in bin)", err)
	}
	k, err := key([]any{builderVersion, sum(agent), filepath.Base(kernel.dir)})
	if err != nil {
		return entry{}, err
	}
	b.used[k] = true
	e, cached := b.cache.get(kindInitrd, k)
	if !cached {
		b.progress.begin(StepInitrd, "")
		e, err = b.cache.put(ctx, kindInitrd, k, func(dir string) (any, error) {
			return nil, writeInitrd(filepath.Join(dir, InitrdFile), agent, kernel.dir)
		})
		if err != nil {
			return entry{}, err
		}
	}
	b.progress.done(StepInitrd, cached, "")
	return e, nil
}

func writeInitrd(path string, agent []byte, kernelDir string) error {
	order, err := os.ReadFile(filepath.Join(kernelDir, orderFile))
	if err != nil {
		return fmt.Errorf("pack initramfs: %w", err)
	}
	var modules []initramfs.Module
	for name := range strings.FieldsSeq(string(order)) {
		data, err := os.ReadFile(filepath.Join(kernelDir, filepath.Base(name)))
		if err != nil {
			return fmt.Errorf("pack initramfs: %w", err)
		}
		modules = append(modules, initramfs.Module{File: name, Data: data})
	}
	entries, err := initramfs.Guest(agent, modules)
	if err != nil {
		return fmt.Errorf("pack initramfs: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("pack initramfs: %w", err)
	}
	if err := initramfs.Write(f, entries); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
