package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/forkd/forkd/internal/images/debtool"
)

// foreignVersion is part of the cache key of foreign roots. Increase it if the same inputs are to give another root.
const foreignVersion = 1

// Foreign is a root that does not come from a recipe.
type Foreign struct {
	Name        string
	Description string
	MemoryMiB   int    // 0 for a recipe's default
	VCPUs       int    // 0 for a recipe's default
	Disk        string // as in a recipe
	Env         map[string]string
	Container   Container
	// Modules names kernel modules and sets of them, as in a recipe. They are in /lib/modules, with
	// depmod's index.
	Modules []string
	// Start is the command line of the service, or empty. Ready is the condition that a snapshot waits for, or nil.
	Start string
	Ready *Ready
	// Inputs determine the root's content. They are part of its cache key.
	Inputs any
	// Fetch gets what Write needs. It is not called if the cache has the root. Other builds can run meanwhile.
	Fetch func(ctx context.Context, report func(fraction float64, detail string)) error
	// Write writes the root to path, a new file, as an EROFS image with this UUID.
	Write func(ctx context.Context, path, uuid string, g Guest, report func(fraction float64)) (Account, error)
}

// Account is the default account of programs in a foreign root.
type Account struct {
	User    string `json:"user"`
	Workdir string `json:"workdir"`
}

// Guest lists forkd's own files of a root.
type Guest struct {
	Folders []string
	// Files returns the files for an account. They take the place of files of the root.
	Files func(Account) ([]GuestFile, error)
	// Emptied are files that get no content, if the root has them: two guests must not share it.
	Emptied []string
}

// GuestFile is a file of a root.
type GuestFile struct {
	Path string
	Mode uint16
	Data []byte
}

// BuildForeign is Build for a foreign root. c.Recipe is ignored.
func BuildForeign(ctx context.Context, c BuildConfig, f Foreign) (Image, error) {
	img, err := buildForeign(ctx, c, f)
	if err != nil {
		return Image{}, fmt.Errorf("make image %s: %w", f.Name, err)
	}
	return img, nil
}

func buildForeign(ctx context.Context, c BuildConfig, f Foreign) (Image, error) {
	if err := CheckName(f.Name); err != nil {
		return Image{}, err
	}
	r := &Recipe{Name: f.Name, Description: f.Description, MemoryMiB: f.MemoryMiB, VCPUs: f.VCPUs, Env: f.Env,
		Disk: Text{Value: f.Disk}, Start: f.Start, Ready: f.Ready}
	for _, m := range f.Modules {
		r.Modules = append(r.Modules, Text{Value: m})
	}
	r.setDefaults()
	if err := errors.Join(r.checkDisk(), r.checkModules(), r.checkService()); err != nil {
		return Image{}, fmt.Errorf("%w%w", ErrRecipe, err)
	}
	c.Recipe = r
	look := lookForeignTools
	if len(f.Modules) > 0 {
		look = func() error { return errors.Join(lookForeignTools(), debtool.Look("depmod", modprobePackage)) }
	}
	b, err := newBuildWith(c, look)
	if err != nil {
		return Image{}, err
	}
	b.foreign = &f
	if err := b.fetchForeign(ctx); err != nil {
		return Image{}, err
	}
	return b.image(ctx, c.Store)
}

// lookForeignTools checks for the tools for the kernel and the disk.
func lookForeignTools() error {
	return errors.Join(debtool.Look("apt-get", "apt"), debtool.Look("mke2fs", "e2fsprogs"))
}

// fetchForeign fetches before the cache is locked. The key of a root with modules is not known yet, so its layers
// are always fetched; most of them are in the cache of layers.
func (b *build) fetchForeign(ctx context.Context) error {
	if len(b.foreign.Modules) == 0 {
		k, err := b.foreignKey(nil)
		if err != nil {
			return err
		}
		if _, ok := b.cache.get(kindRoot, k); ok {
			b.progress.done(StepFetch, true, "")
			return nil
		}
	}
	b.progress.begin(StepFetch, "")
	detail := ""
	err := b.foreign.Fetch(ctx, func(fraction float64, text string) {
		detail = text
		b.progress.at(StepFetch, fraction, text)
	})
	if err != nil {
		return err
	}
	b.progress.done(StepFetch, false, detail)
	return nil
}

func (b *build) foreignKey(modules []rootFile) (string, error) {
	inputs := []any{"foreign", foreignVersion, b.foreign.Inputs, b.recipe.Name, b.recipe.Env}
	if len(modules) > 0 {
		inputs = append(inputs, modules)
	}
	return key(inputs)
}

// foreignRoot writes the root, or finds it in the cache.
func (b *build) foreignRoot(ctx context.Context) (entry, error) {
	modules, err := b.moduleFiles(ctx)
	if err != nil {
		return entry{}, err
	}
	k, err := b.foreignKey(modules)
	if err != nil {
		return entry{}, err
	}
	_, hit := b.cache.get(kindRoot, k)
	if !hit {
		b.progress.begin(StepPack, "")
	}
	e, err := b.cached(ctx, kindRoot, k, func(dir string) (any, error) {
		extra, err := indexed(ctx, b.run, modules, dir)
		if err != nil {
			return nil, err
		}
		return b.foreign.Write(ctx, filepath.Join(dir, RootFile), uuid(k), b.foreignGuest(extra), func(fraction float64) {
			b.progress.at(StepPack, fraction, "")
		})
	})
	if err != nil {
		return entry{}, err
	}
	var a Account
	if err := json.Unmarshal(e.Extra, &a); err != nil {
		return entry{}, fmt.Errorf("read root cache: %w", err)
	}
	b.recipe.User, b.recipe.Workdir = a.User, a.Workdir
	b.progress.done(StepPack, hit, "")
	return e, nil
}

// foreignGuest returns forkd's own files, and extra files.
func (b *build) foreignGuest(extra []GuestFile) Guest {
	return Guest{
		Folders: []string{"/etc/forkd/fork.d"},
		Emptied: []string{"/etc/machine-id", "/var/lib/dbus/machine-id"},
		Files: func(a Account) ([]GuestFile, error) {
			meta, err := json.MarshalIndent(guestMetadata{FormatVersion: guestFormatVersion, Name: b.recipe.Name,
				Env: b.recipe.Env, User: a.User, Workdir: a.Workdir}, "", "  ")
			all := slices.Clone(extra)
			for _, f := range fixedFiles(append(meta, '\n')) {
				all = append(all, GuestFile{Path: f.Path, Mode: uint16(f.Mode), Data: f.Data}) // #nosec G115 -- permissions
			}
			return all, err
		},
	}
}
