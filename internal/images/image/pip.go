package image

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/images/debtool"
)

//go:embed pip.sh
var pipScript string

var (
	// requirementRE matches a package of PyPI: a name, extras, versions. It excludes URLs and options.
	requirementRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}(\[[A-Za-z0-9._,-]{1,99}\])?` +
		`((==|~=|!=|>=|<=|>|<)[A-Za-z0-9.!+*_-]{1,64}(,(==|~=|!=|>=|<=|>|<)[A-Za-z0-9.!+*_-]{1,64})*)?$`)
	noWheelRE  = regexp.MustCompile(`No matching distribution found for ([^ ]+)`)
	noPipRE    = regexp.MustCompile(`No module named pip\b`)
	libcRE     = regexp.MustCompile(`^libc6=2\.([0-9]+)`)
	distInfoRE = regexp.MustCompile(`^(.+)-([^-]+)\.dist-info$`)
)

// installPip installs the recipe's PyPI packages into the tree. It returns all installed packages, including
// dependencies, as "pip:name=version".
func (b *rootBuild) installPip(ctx context.Context, tree string, debian []string) ([]string, error) {
	all := b.recipe.pypi()
	if len(all) == 0 {
		return nil, nil
	}
	python, err := os.Readlink(filepath.Join(tree, "usr/bin/python3"))
	version, ok := strings.CutPrefix(filepath.Base(python), "python")
	if err != nil || !ok {
		return nil, fmt.Errorf("%w: %s: pip needs python3 among the packages",
			ErrRecipe, b.recipe.place(all[0]))
	}
	libc, err := libcMinor(debian)
	if err != nil {
		return nil, err
	}
	b.progress.begin(StepRoot, "packages of PyPI")
	script := []string{"sh", "-c", pipScript, "pip.sh", tree, version, strconv.Itoa(libc)}
	if err := b.runPip(ctx, version, script, b.recipe.Pip); err != nil {
		return nil, err
	}
	script = append([]string{"env", "PIP_NO_DEPS=1"}, script...)
	if err := b.runPip(ctx, version, script, b.recipe.PipNoDeps); err != nil {
		return nil, err
	}
	return distributions(filepath.Join(tree, "usr/local/lib", "python"+version, "dist-packages"))
}

// pypi returns all packages of PyPI that the recipe names.
func (r *Recipe) pypi() []Text { return slices.Concat(r.Pip, r.PipNoDeps) }

// runPip installs packages by the script, a command line without them.
func (b *rootBuild) runPip(ctx context.Context, python string, script []string, packages []Text) error {
	if len(packages) == 0 {
		return nil
	}
	c := b.asRoot(slices.Concat(script, texts(packages))...)
	c.OnLine = func(line string) {
		if name, ok := strings.CutPrefix(line, "Collecting "); ok {
			b.progress.begin(StepRoot, "PyPI: "+name)
		}
	}
	if _, err := b.run(ctx, c); err != nil {
		return fmt.Errorf("install packages of PyPI: %w", b.recipe.blamePip(err, python))
	}
	return nil
}

// libcMinor returns the minor version of glibc, 36 for 2.36.
func libcMinor(debian []string) (int, error) {
	for _, p := range debian {
		if m := libcRE.FindStringSubmatch(p); m != nil {
			return strconv.Atoi(m[1])
		}
	}
	return 0, errors.New("install packages of PyPI: the root has no libc6")
}

// distributions lists the packages that pip has installed.
func distributions(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read installed packages of PyPI: %w", err)
	}
	var all []string
	for _, e := range entries {
		if m := distInfoRE.FindStringSubmatch(e.Name()); m != nil {
			all = append(all, "pip:"+m[1]+"="+m[2])
		}
	}
	slices.Sort(all)
	return all, nil
}

// blamePip finds the recipe's error in pip's output.
func (r *Recipe) blamePip(err error, python string) error {
	var failed *debtool.Error
	if !errors.As(err, &failed) {
		return err
	}
	for _, line := range failed.Tail {
		if noPipRE.MatchString(line) {
			return fmt.Errorf("python3-pip %w: run `%s`, or apt-get install python3-pip", debtool.ErrMissing, debtool.Installer())
		}
		m := noWheelRE.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		at := r.path
		for _, p := range r.pypi() {
			if p.Value == m[1] {
				at = r.place(p)
			}
		}
		return fmt.Errorf("%w: %s: PyPI has no wheel of %s for Python %s on Linux", ErrRecipe, at, m[1], python)
	}
	return err
}

// texts returns the values without their lines.
func texts(all []Text) []string {
	out := make([]string, 0, len(all))
	for _, t := range all {
		out = append(out, t.Value)
	}
	return out
}
