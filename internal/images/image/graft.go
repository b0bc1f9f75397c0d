package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/tempdir"
)

// Graft makes an image from a foreign root and from the kernel, the initramfs and the writable disk of another
// image, the donor. It needs none of the tools of a build. The donor can be in another store on the same file system;
// the images share its files. Modules, Disk, Fetch and Inputs of the root are ignored. On an error the store is
// unchanged.
func Graft(ctx context.Context, s *Store, donor Image, f Foreign, report func(fraction float64)) (Image, error) {
	img, err := graft(ctx, s, donor, f, report)
	if err != nil {
		return Image{}, fmt.Errorf("make image %s: %w", f.Name, err)
	}
	return img, nil
}

func graft(ctx context.Context, s *Store, donor Image, f Foreign, report func(float64)) (Image, error) {
	if err := CheckName(f.Name); err != nil {
		return Image{}, err
	}
	r := &Recipe{Name: f.Name, Description: f.Description, MemoryMiB: f.MemoryMiB, VCPUs: f.VCPUs, Env: f.Env,
		Start: f.Start, Ready: f.Ready}
	r.setDefaults()
	if err := r.checkService(); err != nil {
		return Image{}, fmt.Errorf("%w%w", ErrRecipe, err)
	}
	r.diskMiB = donor.Defaults.DiskMiB
	id, err := donor.ID()
	if err != nil {
		return Image{}, err
	}
	k, err := key([]any{"graft", foreignVersion, id, f.Name})
	if err != nil {
		return Image{}, err
	}
	tmp, err := makeTemp(s.dir)
	if err != nil {
		return Image{}, err
	}
	defer tmp.Remove()
	b := &build{recipe: r, foreign: &f}
	account, err := f.Write(ctx, filepath.Join(tmp.Path, RootFile), uuid(k), b.foreignGuest(nil), report)
	if err != nil {
		return Image{}, err
	}
	r.User, r.Workdir = account.User, account.Workdir
	sum, err := sumFile(ctx, filepath.Join(tmp.Path, RootFile))
	if err != nil {
		return Image{}, err
	}
	given := entry{dir: donor.Dir, Files: maps.Clone(donor.Files)}
	parts := map[string]entry{}
	for _, name := range donor.dataFiles() {
		parts[name] = given
	}
	parts[RootFile] = entry{dir: tmp.Path, Files: map[string]FileSum{RootFile: sum}}
	m, err := b.metadata(parts, donor.Kernel)
	if err != nil {
		return Image{}, err
	}
	return b.store(s, m, parts)
}

// Donor returns the image with this name, or the newest image if there is none.
func (s *Store) Donor(name string) (Image, error) {
	img, err := s.Get(name)
	if err == nil || !errors.Is(err, ErrNotFound) {
		return img, err
	}
	all, err := s.List() // damaged images are left out and named in err
	if len(all) == 0 {
		return Image{}, errors.Join(fmt.Errorf("%w: there is no image yet", ErrNotFound), err)
	}
	return slices.MinFunc(all, func(a, b Image) int { return -a.Created.Compare(b.Created) }), nil
}

// Clear removes all images of a store, and files of interrupted work. No other process may use the store.
func Clear(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, tempdir.RemoveTree(filepath.Join(dir, e.Name())))
	}
	if err != nil {
		return err
	}
	return durable.SyncDir(dir)
}
