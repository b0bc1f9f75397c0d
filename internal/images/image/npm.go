package image

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/images/debtool"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

//go:embed npm.sh
var npmScript string

// npmLock is npm's own list of installed packages in the tree. maxNpmLock limits its size.
const (
	npmLock    = "usr/local/lib/node_modules/.package-lock.json"
	maxNpmLock = 64 << 20
)

var (
	// npmRE matches a package of the npm registry: a name, optionally with a scope, and a version or range. It
	// excludes URLs, directories and options.
	npmRE        = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]{0,99}/)?[a-z0-9][a-z0-9._-]{0,199}(@[0-9A-Za-z.^~<>=*+-]{1,64})?$`)
	npmNameRE    = regexp.MustCompile(`^(@[a-z0-9~-][a-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*$`)
	npmVersionRE = regexp.MustCompile(`^[0-9A-Za-z.+-]{1,128}$`)
	integrityRE  = regexp.MustCompile(`^sha512-[A-Za-z0-9+/]{86}==$`)
	noVersionRE  = regexp.MustCompile(`No matching version found for (\S+?)\.?$`)
	noPackageRE  = regexp.MustCompile(`404 .*'(\S+?)(?:@\*)?'|404 Not Found - GET \S+/(\S+?)(?: - .*)?$`)
)

// installNpm installs the recipe's npm packages into the tree. It returns all installed packages, including
// dependencies, as "npm:name=version".
func (b *rootBuild) installNpm(ctx context.Context, tree string) ([]string, error) {
	if len(b.recipe.Npm) == 0 {
		return nil, nil
	}
	if _, err := os.Lstat(filepath.Join(tree, "usr/bin/node")); err != nil {
		return nil, fmt.Errorf("%w: %s: npm needs nodejs among the packages",
			ErrRecipe, b.recipe.place(b.recipe.Npm[0]))
	}
	b.progress.begin(StepRoot, "packages of the npm registry")
	args := []string{"sh", "-c", npmScript, "npm.sh", tree}
	if _, err := b.run(ctx, b.asRoot(append(args, texts(b.recipe.Npm)...)...)); err != nil {
		return nil, fmt.Errorf("install packages of the npm registry: %w", b.recipe.blameNpm(err))
	}
	f, err := os.OpenInRoot(tree, npmLock)
	if err != nil {
		return nil, fmt.Errorf("read installed packages of the npm registry: %w", err)
	}
	defer f.Close()
	text, err := readCapped(f, maxNpmLock)
	if err != nil {
		return nil, fmt.Errorf("read installed packages of the npm registry: %w", err)
	}
	return npmPackages(text)
}

// npmPackages parses npm's list. It rejects a package without a strong digest, because npm has not verified it.
func npmPackages(lock []byte) ([]string, error) {
	var list struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Integrity string `json:"integrity"`
			Optional  bool   `json:"optional"`
			InBundle  bool   `json:"inBundle"`
			Link      bool   `json:"link"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(lock, &list); err != nil {
		return nil, fmt.Errorf("read npm's list of packages: %w", err)
	}
	var all []string
	for path, p := range list.Packages {
		if path == "" { // the directory itself
			continue
		}
		at := strings.LastIndex(path, "node_modules/")
		name := path[max(at, 0):]
		name = strings.TrimPrefix(name, "node_modules/")
		switch {
		case at < 0 || p.Link || !npmNameRE.MatchString(name) || len(name) > 214 || !npmVersionRE.MatchString(p.Version):
			return nil, fmt.Errorf("npm's list has %q, version %q, which is no package of a registry",
				ellipsis.Clip(path, 200), ellipsis.Clip(p.Version, 80))
		case p.InBundle: // part of another package, whose digest covers it
		case !integrityRE.MatchString(p.Integrity):
			return nil, fmt.Errorf("package %s@%s has no SHA-512 in the npm registry, so nothing vouches for it",
				name, p.Version)
		}
		all = append(all, "npm:"+name+"="+p.Version)
	}
	if len(all) == 0 {
		return nil, errors.New("npm's list has no packages")
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// blameNpm finds the recipe's error in npm's output.
func (r *Recipe) blameNpm(err error) error {
	var failed *debtool.Error
	if !errors.As(err, &failed) {
		return err
	}
	for _, line := range failed.Tail {
		if strings.Contains(line, "npm: not found") {
			return fmt.Errorf("npm %w: apt-get install npm", debtool.ErrMissing)
		}
		if m := noVersionRE.FindStringSubmatch(line); m != nil {
			return fmt.Errorf("%w: %s: the npm registry has no version %s", ErrRecipe, r.npmPlace(m[1]), m[1])
		}
		if m := noPackageRE.FindStringSubmatch(line); m != nil {
			name := strings.NewReplacer("%2f", "/", "%2F", "/").Replace(m[1] + m[2])
			return fmt.Errorf("%w: %s: the npm registry has no package %s", ErrRecipe, r.npmPlace(name), name)
		}
	}
	return err
}

// npmPlace returns FILE:LINE of a package listed in the recipe, or else the file.
func (r *Recipe) npmPlace(name string) string {
	for _, p := range r.Npm {
		if p.Value == name || strings.HasPrefix(p.Value, name+"@") {
			return r.place(p)
		}
	}
	return r.path
}
