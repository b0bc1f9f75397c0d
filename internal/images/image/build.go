package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/images/debtool"
)

// builderVersion is part of every cache key. Increase it if the same inputs are to produce a different image.
const builderVersion = 1

// BuildConfig configures a build.
type BuildConfig struct {
	Recipe *Recipe
	// Agent is the path of the static agent binary, the guest's /init.
	Agent string
	// Store receives the image. Cache is a directory for parts that later builds reuse. If both are on the same
	// file system, they share files.
	Store *Store
	Cache string
	// Progress is called during the build. Calls do not overlap. May be nil.
	Progress func(Progress)
	// Run runs the host's tools. If nil, it is debtool.Run.
	Run debtool.Runner
	// AptRoot is the parent of etc/apt and var/lib/apt. If empty, it is "/". It is for tests.
	AptRoot string
}

// build is a Build in progress.
type build struct {
	recipe   *Recipe
	agent    string
	cache    *cache
	run      debtool.Runner
	progress reporter
	aptState string
	used     map[string]bool // keys of the cache entries used by this build
	foreign  *Foreign        // the root does not come from packages
}

// Build builds a recipe's image and puts it into the store, replacing an image with the same name. It rebuilds
// only the parts that changed. If all are unchanged, it takes a few milliseconds and does not touch the store. On
// an error the store is unchanged.
func Build(ctx context.Context, c BuildConfig) (Image, error) {
	img, err := buildImage(ctx, c)
	if err != nil {
		return Image{}, fmt.Errorf("build image %s: %w", c.Recipe.Name, c.fullDisk(err))
	}
	return img, nil
}

// fullDisk adds to the error of a full disk the disks to which a build writes, and their room.
func (c BuildConfig) fullDisk(err error) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	var disks []string
	seen := map[unix.Fsid]bool{}
	for _, dir := range []string{c.Cache, c.Store.Dir(), os.TempDir()} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) != nil || seen[st.Fsid] {
			continue
		}
		seen[st.Fsid] = true
		disks = append(disks, fmt.Sprintf("%s (%d MiB free)", dir, st.Bavail*uint64(st.Bsize)>>20)) // #nosec G115 -- a size
	}
	return fmt.Errorf("%w; the build writes to the disk of %s: make room and build again", err,
		strings.Join(disks, " and of "))
}

func buildImage(ctx context.Context, c BuildConfig) (Image, error) {
	b, err := newBuild(c)
	if err != nil {
		return Image{}, err
	}
	return b.image(ctx, c.Store)
}

// image builds all parts, and stores the image.
func (b *build) image(ctx context.Context, store *Store) (Image, error) {
	unlock, err := b.cache.lock(ctx, func() { b.progress.begin(StepResolve, "wait for another build") })
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	root, err := b.rootPart(ctx)
	if err != nil {
		return Image{}, err
	}
	kernel, kernelInfo, err := b.kernelPart(ctx)
	if err != nil {
		return Image{}, err
	}
	initrd, err := b.initrdPart(ctx, kernel)
	if err != nil {
		return Image{}, err
	}
	parts := map[string]entry{RootFile: root, KernelFile: kernel, InitrdFile: initrd}
	if b.recipe.diskMiB > 0 {
		if parts[UpperFile], err = b.upperPart(ctx); err != nil {
			return Image{}, err
		}
	}
	m, err := b.metadata(parts, kernelInfo)
	if err != nil {
		return Image{}, err
	}
	img, err := b.store(store, m, parts)
	if err != nil {
		return Image{}, err
	}
	return img, b.cache.prune(b.used)
}

func newBuild(c BuildConfig) (*build, error) { return newBuildWith(c, lookTools) }

func newBuildWith(c BuildConfig, look func() error) (*build, error) {
	b := &build{recipe: c.Recipe, agent: c.Agent, run: c.Run, progress: c.Progress, used: map[string]bool{}}
	if b.run == nil {
		b.run = debtool.Run
		if err := look(); err != nil {
			return nil, err
		}
	}
	aptRoot := c.AptRoot
	if aptRoot == "" {
		aptRoot = "/"
	}
	var err error
	if b.aptState, err = aptState(aptRoot); err != nil {
		return nil, err
	}
	if err := checkAgent(c.Agent); err != nil {
		return nil, err
	}
	b.cache, err = openCache(c.Cache)
	return b, err
}

// checkAgent checks the agent before half a minute of work. It must be an ELF file: a script cannot be init here,
// because there is no interpreter.
func checkAgent(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open agent: %w (make build leaves it in bin)", err)
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil || !bytes.Equal(magic, []byte("\x7fELF")) {
		return fmt.Errorf("agent %s is not a program (an ELF file)", path)
	}
	return nil
}

// cached returns a cache entry. If it is missing, fill makes it.
func (b *build) cached(ctx context.Context, kind, k string, fill func(dir string) (any, error)) (entry, error) {
	b.used[k] = true
	if e, ok := b.cache.get(kind, k); ok {
		return e, nil
	}
	return b.cache.put(ctx, kind, k, fill)
}

// resolved asks apt once for each recipe and state of apt's lists.
func (b *build) resolved(ctx context.Context) (resolution, error) {
	k, err := key([]any{builderVersion, basePackages, b.recipe.Suite, b.recipe.packageNames(), b.aptState})
	if err != nil {
		return resolution{}, err
	}
	_, hit := b.cache.get(kindResolve, k)
	if !hit {
		b.progress.begin(StepResolve, "")
	}
	e, err := b.cached(ctx, kindResolve, k, func(dir string) (any, error) {
		return resolve(ctx, b.run, b.recipe, b.aptState, dir)
	})
	if err != nil {
		return resolution{}, err
	}
	var res resolution
	if err := json.Unmarshal(e.Extra, &res); err != nil {
		return resolution{}, fmt.Errorf("read resolution: %w", err)
	}
	detail := fmt.Sprintf("%d packages", len(res.Packages))
	if len(res.Packages) == 0 {
		detail = "in " + b.recipe.Suite + ", which is not this host's: mmdebstrap chooses the versions"
	}
	b.progress.done(StepResolve, hit, detail)
	return res, nil
}

// rootPart builds the root image. Its key contains the versions of all packages, so that new package lists alone
// cause no rebuild.
func (b *build) rootPart(ctx context.Context) (entry, error) {
	if b.foreign != nil {
		return b.foreignRoot(ctx)
	}
	files, err := b.recipe.readFiles()
	if err != nil {
		return entry{}, err
	}
	res, err := b.resolved(ctx)
	if err != nil {
		return entry{}, err
	}
	modules, err := b.moduleFiles(ctx)
	if err != nil {
		return entry{}, err
	}
	files = append(modules, files...)
	k, err := b.rootKey(files, res)
	if err != nil {
		return entry{}, err
	}
	_, hit := b.cache.get(kindRoot, k)
	e, err := b.cached(ctx, kindRoot, k, func(dir string) (any, error) {
		r := rootBuild{run: b.run, recipe: b.recipe, res: res, files: files, uuid: uuid(k), progress: b.progress}
		return r.build(ctx, dir)
	})
	if err != nil {
		return entry{}, err
	}
	b.progress.done(StepRoot, hit, "")
	b.progress.done(StepPack, hit, "")
	return e, nil
}

// rootKey returns a digest of all inputs of a root image.
func (b *build) rootKey(files []rootFile, res resolution) (string, error) {
	if len(res.Packages) > 0 {
		res.State = "" // the versions are more precise
	}
	return key(struct {
		Builder            int
		Script             string
		Excludes, Includes []string
		Suite, Compression string
		Packages           []string
		Pip                []string `json:",omitempty"`
		PipNoDeps          []string `json:",omitempty"`
		PipScript          string   `json:",omitempty"`
		Npm                []string `json:",omitempty"`
		NpmScript          string   `json:",omitempty"`
		Setup              string
		Files              []rootFile
		Guest              guestMetadata
		Resolution         resolution
	}{
		builderVersion, finishScript, excludes, includes, b.recipe.Suite, b.recipe.Compression,
		b.recipe.packageNames(), texts(b.recipe.Pip), texts(b.recipe.PipNoDeps), b.pipScript(),
		texts(b.recipe.Npm), b.npmScript(),
		manFolders, files, b.recipe.guest(), res,
	})
}

// pipScript returns the script, or an empty string for recipes without PyPI packages, which do not depend on it.
func (b *build) pipScript() string {
	if len(b.recipe.pypi()) == 0 {
		return ""
	}
	return pipScript
}

// npmScript returns the script, or an empty string for recipes without npm packages, which do not depend on it.
func (b *build) npmScript() string {
	if len(b.recipe.Npm) == 0 {
		return ""
	}
	return npmScript
}

// uuid returns a file system's UUID derived from a digest.
func uuid(digest string) string {
	return digest[:8] + "-" + digest[8:12] + "-4" + digest[13:16] + "-8" + digest[17:20] + "-" + digest[20:32]
}

func (b *build) metadata(parts map[string]entry, info KernelInfo) (Metadata, error) {
	r := b.recipe
	m := Metadata{
		FormatVersion: FormatVersion,
		Name:          r.Name,
		Description:   r.Description,
		Suite:         r.Suite,
		Kernel:        info,
		Files:         map[string]FileSum{},
		Defaults: Defaults{
			MemoryMiB: r.MemoryMiB, VCPUs: r.VCPUs, DiskMiB: r.diskMiB, Env: r.Env, User: r.User, Workdir: r.Workdir,
			Start: r.Start, Ready: r.Ready, Warm: r.Warm, FirstUse: r.FirstUse,
		},
	}
	for name, part := range parts {
		m.Files[name] = part.Files[name]
	}
	if b.foreign != nil {
		m.Container, m.Packages = &b.foreign.Container, []string{}
		return m, m.check()
	}
	if err := json.Unmarshal(parts[RootFile].Extra, &m.Packages); err != nil {
		return m, fmt.Errorf("read root cache: %w", err)
	}
	return m, m.check()
}

// store assembles the image. It does nothing if the store already has the same image.
func (b *build) store(s *Store, m Metadata, parts map[string]entry) (Image, error) {
	id, err := m.ID()
	if err != nil {
		return Image{}, err
	}
	if s.Has(m.Name, id) {
		b.progress.done(StepStore, true, "")
		return s.Get(m.Name)
	}
	b.progress.begin(StepStore, "")
	tmp, err := makeTemp(s.dir)
	if err != nil {
		return Image{}, fmt.Errorf("store image: %w", err)
	}
	defer tmp.Remove()
	for name, part := range parts {
		if err := linkOrCopy(filepath.Join(part.dir, name), filepath.Join(tmp.Path, name)); err != nil {
			return Image{}, fmt.Errorf("store image: %w", err)
		}
	}
	meta, err := m.encode()
	if err != nil {
		return Image{}, err
	}
	if err := os.WriteFile(filepath.Join(tmp.Path, MetadataFile), meta, 0o644); err != nil {
		return Image{}, fmt.Errorf("store image: %w", err)
	}
	if err := publish(tmp, s.dir, m.Name); err != nil {
		return Image{}, fmt.Errorf("store image: %w", err)
	}
	b.progress.done(StepStore, false, "")
	return s.Get(m.Name)
}

// writeFrom writes r to a new file.
func writeFrom(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
