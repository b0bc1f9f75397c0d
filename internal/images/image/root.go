package image

import (
	"archive/tar"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/images/debtool"
	"github.com/forkd/forkd/internal/sys/tempdir"
)

//go:embed finish.sh
var finishScript string

// excludes are paths that dpkg does not unpack: documentation that programs do not read.
var excludes = []string{
	"/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/doc/*",
	"/usr/share/lintian/*", "/usr/share/bug/*",
}

// includes are exceptions: licences must accompany the programs.
var includes = []string{"/usr/share/locale/locale.alias", "/usr/share/doc/*/copyright"}

// manFolders creates the directories of man pages, which are otherwise excluded. Packages that create links of
// alternatives in them would fail without them.
const manFolders = `for n in 1 2 3 4 5 6 7 8; do mkdir -p "$1/usr/share/man/man$n"; done`

// workPrefix begins the name of a root build's work directory.
const workPrefix = "forkd-root-"

// rootBuild is one run of mmdebstrap and the following steps.
type rootBuild struct {
	run      debtool.Runner
	recipe   *Recipe
	res      resolution
	files    []rootFile
	uuid     string
	progress reporter
	temp     string // the tools' temporary directory, removed with the tree
}

// rootFile is a file of the recipe with its content.
type rootFile struct {
	Path string `json:"path"`
	Mode int64  `json:"mode"`
	Data []byte `json:"-"`
	Sum  string `json:"sha256"`
}

// readFiles reads the recipe's files for the root. Sources must be inside the recipe's directory.
func (r *Recipe) readFiles() ([]rootFile, error) {
	var all []rootFile
	for _, f := range r.Files {
		mode, err := f.mode()
		if err != nil {
			return nil, err // checked before; cannot happen
		}
		out := rootFile{Path: f.Path.Value, Mode: mode}
		if f.Content != nil {
			out.Data = []byte(*f.Content)
		} else if out.Data, err = readSource(f.dir, f.Source); err != nil {
			return nil, fmt.Errorf("%w: %s:%d: source of %s: %w", ErrRecipe, f.recipe, f.Path.Line, f.Path.Value, err)
		}
		out.Sum = sum(out.Data)
		all = append(all, out)
	}
	return all, nil
}

func readSource(dir, name string) ([]byte, error) {
	f, err := os.OpenInRoot(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return readCapped(f, maxContent)
}

// guest returns the metadata in the root, which the agent reads.
func (r *Recipe) guest() guestMetadata {
	return guestMetadata{FormatVersion: guestFormatVersion, Name: r.Name, Env: r.Env, User: r.User, Workdir: r.Workdir,
		DiskDirs: texts(r.DiskDirs), Limits: r.Limits}
}

// build writes RootFile into dir and returns the installed packages.
func (b *rootBuild) build(ctx context.Context, dir string) (_ []string, err error) {
	temp, err := b.workDir(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("build root: %w", err)
	}
	work := temp.Path
	b.temp = filepath.Join(work, "tmp")
	defer func() {
		err = errors.Join(err, b.cleanUp(ctx, work))
		temp.Release()
	}()
	before := filepath.Join(work, "before")
	additions := filepath.Join(work, "additions.tar")
	list := filepath.Join(work, "sources.list")
	tree := filepath.Join(work, "tree")
	out := filepath.Join(work, "out", RootFile)
	files := map[string][]byte{before: nil, list: []byte(strings.Join(b.res.Sources, "\n") + "\n")}
	if files[additions], err = b.additions(); err != nil {
		return nil, err
	}
	for name, data := range files {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return nil, fmt.Errorf("build root: %w", err)
		}
	}
	if err := b.bootstrap(ctx, tree, list); err != nil {
		return nil, fmt.Errorf("build root: %w", b.recipe.blame(err))
	}
	packages, err := treePackages(tree)
	if err != nil {
		return nil, fmt.Errorf("build root: %w", err)
	}
	python, err := b.installPip(ctx, tree, packages)
	if err != nil {
		return nil, fmt.Errorf("build root: %w", err)
	}
	node, err := b.installNpm(ctx, tree)
	if err != nil {
		return nil, fmt.Errorf("build root: %w", err)
	}
	packages = slices.Concat(packages, python, node)
	if err := b.pack(ctx, tree, additions, out, before); err != nil {
		return nil, fmt.Errorf("pack root: %w", b.recipe.blame(err))
	}
	if err := moveFile(out, filepath.Join(dir, RootFile)); err != nil {
		return nil, fmt.Errorf("pack root: %w", err)
	}
	return packages, nil
}

// lookTools checks for missing tools before half a minute of work.
func lookTools() error {
	errs := []error{debtool.Look("apt-get", "apt"), debtool.Look("mmdebstrap", "mmdebstrap"),
		debtool.Look("mkfs.erofs", "erofs-utils"), debtool.Look("mke2fs", "e2fsprogs")}
	if os.Geteuid() != 0 {
		errs = append(errs, debtool.Look("newuidmap", "uidmap"))
	}
	return errors.Join(errs...)
}

// workDir creates the directory for the tree. Without root, the tree belongs to other user ids, which must be
// able to access it, so it must not be below a private home directory. It first removes those of killed builds there;
// a failure leaves them for the next build.
func (b *rootBuild) workDir(ctx context.Context, dir string) (*tempdir.Dir, error) {
	parent := dir
	if os.Geteuid() != 0 {
		parent = os.TempDir()
		_ = tempdir.Sweep(parent, workPrefix, func(path string) error { return b.cleanUp(ctx, path) })
	}
	temp, err := tempdir.Make(parent, workPrefix)
	if err != nil {
		return nil, err
	}
	work := temp.Path
	err = os.Chmod(work, 0o755)
	for _, name := range []string{"out", "tmp"} {
		if err == nil {
			err = os.Mkdir(filepath.Join(work, name), 0o755)
		}
	}
	if err == nil && os.Geteuid() != 0 {
		// mkfs.erofs writes here under another user id, and mmdebstrap creates the tree beside it. Other users
		// cannot remove or replace their files.
		const open = os.ModeSticky | 0o777
		for _, dir := range []string{"out", "tmp", "."} {
			err = errors.Join(err, os.Chmod(filepath.Join(work, dir), open)) // #nosec G302 -- see above
		}
	}
	if err != nil {
		temp.Remove()
		return nil, err
	}
	return temp, nil
}

// cleanUp removes the tree, even if the build was cancelled.
func (b *rootBuild) cleanUp(ctx context.Context, work string) error {
	theirs := []string{"find"}
	for _, dir := range []string{filepath.Join(work, "tree"), filepath.Join(work, "tmp")} {
		if _, err := os.Lstat(dir); err == nil {
			theirs = append(theirs, dir)
		}
	}
	if len(theirs) > 1 && os.Geteuid() != 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, err := b.run(ctx, b.asRoot(append(theirs, "-mindepth", "1", "-delete")...))
		if err != nil {
			return fmt.Errorf("remove %s: %w", work, err)
		}
	}
	return tempdir.RemoveTree(work)
}

// asRoot returns a command that runs as the user ids that own the tree.
func (b *rootBuild) asRoot(args ...string) debtool.Command {
	if os.Geteuid() != 0 {
		args = append([]string{"mmdebstrap", "--unshare-helper"}, args...)
	}
	c := debtool.Command{Args: args, Package: "mmdebstrap"}
	if b.temp != "" {
		c.Env = []string{"TMPDIR=" + b.temp}
	}
	return c
}

func (b *rootBuild) bootstrap(ctx context.Context, tree, list string) error {
	mode := "unshare"
	if os.Geteuid() == 0 {
		mode = "root"
	}
	args := []string{"mmdebstrap", "--verbose", "--mode=" + mode, "--format=directory", "--variant=minbase",
		"--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
		"--setup-hook=" + manFolders,
		"--aptopt=APT::Install-Recommends false", "--aptopt=Acquire::Languages none"}
	for _, p := range excludes {
		args = append(args, "--dpkgopt=path-exclude="+p)
	}
	for _, p := range includes {
		args = append(args, "--dpkgopt=path-include="+p)
	}
	names := slices.Concat(extraPackages, b.recipe.packageNames())
	args = append(args, "--include="+strings.Join(names, ","), b.recipe.Suite, tree, list)
	watch := bootstrapWatch{report: b.progress, total: len(b.res.Packages)}
	b.progress.begin(StepRoot, "update package lists")
	_, err := b.run(ctx, debtool.Command{
		Args:    args,
		Package: "mmdebstrap",
		// Sets in compiled Python files are written in hash order.
		Env:    []string{"PYTHONHASHSEED=0", "TMPDIR=" + b.temp},
		OnLine: watch.line,
	})
	return err
}

// bootstrapWatch parses the output of mmdebstrap and dpkg.
type bootstrapWatch struct {
	report                  reporter
	total                   int
	got, unpacked, finished int
}

func (w *bootstrapWatch) line(line string) {
	f := strings.Fields(line)
	name := ""
	switch {
	// Get:1 URL SUITE/COMPONENT ARCH NAME ARCH VERSION [SIZE UNIT]; the line of a package list has fewer fields
	case len(f) >= 8 && strings.HasPrefix(f[0], "Get:"):
		w.got++
		name = "download " + f[4]
	case len(f) >= 2 && f[0] == "Unpacking":
		w.unpacked++
		name = "unpack " + f[1]
	case len(f) >= 3 && f[0] == "Setting" && f[1] == "up":
		w.finished++
		name = "set up " + f[2]
	default:
		return
	}
	if w.total == 0 {
		w.report.begin(StepRoot, name)
		return
	}
	done := w.got + w.unpacked + w.finished
	w.report.at(StepRoot, float64(done)/float64(3*w.total),
		fmt.Sprintf("%s (%d of %d packages)", name, w.finished, w.total))
}

func (b *rootBuild) pack(ctx context.Context, tree, additions, out, before string) error {
	b.progress.begin(StepPack, "")
	c := b.asRoot("sh", "-c", finishScript, "finish.sh", tree, additions, out,
		b.recipe.User, b.recipe.Workdir, b.recipe.Compression, before, b.uuid)
	_, err := b.run(ctx, c)
	return err
}

// fixedFiles returns the files that forkd adds to every root.
func fixedFiles(meta []byte) []rootFile {
	return []rootFile{
		{Path: guestFile, Mode: 0o644, Data: meta},
		{Path: "/etc/hostname", Mode: 0o644, Data: []byte("forkd\n")},
		{Path: "/etc/hosts", Mode: 0o644, Data: []byte("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")},
		{Path: "/etc/resolv.conf", Mode: 0o644},
	}
}

// additions returns a tar with forkd's own files and the recipe's. tar creates missing directories as root, with
// mode 0755.
func (b *rootBuild) additions() ([]byte, error) {
	meta, err := json.MarshalIndent(b.recipe.guest(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode guest metadata: %w", err)
	}
	files := fixedFiles(append(meta, '\n'))
	var buf bytes.Buffer
	t := tar.NewWriter(&buf)
	for _, dir := range []string{"etc/forkd/", "etc/forkd/fork.d/"} {
		if err := t.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return nil, fmt.Errorf("write additions: %w", err)
		}
	}
	for _, f := range append(files, b.files...) {
		h := &tar.Header{Name: f.Path[1:], Typeflag: tar.TypeReg, Mode: f.Mode, Size: int64(len(f.Data))}
		if err := t.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write additions: %w", err)
		}
		if _, err := t.Write(f.Data); err != nil {
			return nil, fmt.Errorf("write additions: %w", err)
		}
	}
	if err := t.Close(); err != nil {
		return nil, fmt.Errorf("write additions: %w", err)
	}
	return buf.Bytes(), nil
}

// treePackages returns the packages installed in a tree.
func treePackages(tree string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(tree, "var/lib/dpkg/status"))
	if err != nil {
		return nil, fmt.Errorf("read installed packages: %w", err)
	}
	var all []string
	for stanza := range strings.SplitSeq(string(b), "\n\n") {
		var name, version string
		for line := range strings.Lines(stanza) {
			if v, ok := strings.CutPrefix(line, "Package: "); ok {
				name = strings.TrimSpace(v)
			} else if v, ok := strings.CutPrefix(line, "Version: "); ok {
				version = strings.TrimSpace(v)
			}
		}
		if name != "" {
			all = append(all, name+"="+version)
		}
	}
	slices.Sort(all)
	return all, nil
}

// moveFile renames a file, or copies it between file systems.
func moveFile(src, dst string) error {
	if os.Geteuid() == 0 && os.Rename(src, dst) == nil {
		return nil
	}
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	return writeFrom(dst, in)
}
