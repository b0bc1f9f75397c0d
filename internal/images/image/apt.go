package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/images/debtool"
)

// aptState returns a digest of the state of the host's apt: its sources and the signed release files of its
// package lists. If it is unchanged, all answers of apt are.
func aptState(root string) (string, error) {
	h := sha256.New()
	for _, pattern := range []string{
		"etc/apt/sources.list", "etc/apt/sources.list.d/*", "etc/apt/preferences", "etc/apt/preferences.d/*",
		"var/lib/apt/lists/*Release",
	} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return "", fmt.Errorf("read apt's state: %w", err)
		}
		slices.Sort(files)
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return "", fmt.Errorf("read apt's state: %w", err)
			}
			fmt.Fprintf(h, "%s %d\n%s", f, len(b), b)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// target is one component of a source of the host's apt, as listed by apt-get indextargets.
type target struct {
	uri, release, component, origin, label, signedBy string
}

const targetFormat = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)|$(LABEL)|$(SIGNED_BY)"

// hostTargets asks apt for the host's sources, in both of their file formats.
func hostTargets(ctx context.Context, run debtool.Runner) ([]target, error) {
	out, err := run(ctx, debtool.Command{
		Args:    []string{"apt-get", "indextargets", "--format", targetFormat, "Created-By: Packages"},
		Package: "apt",
	})
	if err != nil {
		return nil, fmt.Errorf("list the host's package sources: %w", err)
	}
	var all []target
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) == 6 {
			all = append(all, target{f[0], f[1], f[2], f[3], f[4], f[5]})
		}
	}
	return all, nil
}

// sourcesFor returns sources.list lines for a Debian release, from the mirrors that the host uses. They are the
// host's own lines if it has that release, or else the same mirrors with the requested one.
func sourcesFor(suite string, targets []target) ([]string, error) {
	var own, other []string
	for _, t := range targets {
		// Before the first apt-get update the origin is unknown.
		if t.component != "main" || (t.origin != "Debian" && t.origin != "") {
			continue
		}
		if base, ok := releaseOf(t.release); !ok {
			continue
		} else if base == suite {
			own = append(own, t.line(t.release))
		} else {
			other = append(other, t.line(suite+strings.TrimPrefix(t.release, base)))
		}
	}
	lines := own
	if !slices.ContainsFunc(own, func(l string) bool { return strings.HasSuffix(l, " "+suite+" main") }) {
		lines = append(own, other...)
	}
	lines = slices.Compact(lines)
	if len(lines) == 0 {
		return nil, errors.New("the host's package sources name no Debian mirror; add one to /etc/apt/sources.list.d and " +
			"run apt-get update")
	}
	return lines, nil
}

// releaseOf returns the release that a pocket belongs to, if any: "bookworm-security" belongs to bookworm,
// "bookworm-backports" does not.
func releaseOf(release string) (base string, ok bool) {
	base = release
	for _, pocket := range []string{"-security", "-updates", "/updates"} {
		base = strings.TrimSuffix(base, pocket)
	}
	return base, base != "" && !strings.Contains(base, "-") && !strings.HasSuffix(base, "/")
}

func (t target) line(release string) string {
	option := ""
	if strings.HasPrefix(t.signedBy, "/") && !strings.ContainsAny(t.signedBy, " \n]") {
		option = "[signed-by=" + t.signedBy + "] "
	}
	return "deb " + option + t.uri + " " + release + " main"
}

// resolution lists the packages that apt would install for a recipe.
type resolution struct {
	Sources []string `json:"sources"`
	// Packages lists "name=version", sorted. It is empty if the host's apt has no lists for the suite.
	Packages []string `json:"packages"`
	// State replaces the versions if they are unknown.
	State string `json:"state"`
}

// basePackages are in every root: the packages of mmdebstrap's minbase variant, and a merged /usr without perl,
// which usrmerge would install.
var basePackages = []string{"?essential", "?priority(required)", "apt", "usr-is-merged"}

// extraPackages are added to every recipe.
var extraPackages = []string{"usr-is-merged"}

var (
	instRE    = regexp.MustCompile(`^Inst (\S+) \((\S+) `)
	unknownRE = regexp.MustCompile(`Unable to locate package (\S+)|Package '?([^' ]+)'? has no installation candidate|Couldn't find any package by (?:glob|regex) '([^']+)'`)
)

// resolve asks the host's apt for the package versions in an empty system. It writes a list of sources in tmp meanwhile.
func resolve(ctx context.Context, run debtool.Runner, r *Recipe, state, tmp string) (resolution, error) {
	targets, err := hostTargets(ctx, run)
	if err != nil {
		return resolution{}, err
	}
	lines, err := sourcesFor(r.Suite, targets)
	if err != nil {
		return resolution{}, err
	}
	res := resolution{Sources: lines, State: state}
	if !slices.ContainsFunc(targets, func(t target) bool { return t.release == r.Suite && t.origin == "Debian" }) {
		return res, nil // the host has no lists of this release; mmdebstrap will fetch them
	}
	list := filepath.Join(tmp, "sources.list")
	if err := os.WriteFile(list, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return resolution{}, fmt.Errorf("resolve packages: %w", err)
	}
	defer os.Remove(list) // the part itself has no files
	args := slices.Concat(simulateArgs(list), basePackages, r.packageNames())
	out, err := run(ctx, debtool.Command{Args: args, Package: "apt"})
	if err != nil {
		return resolution{}, fmt.Errorf("resolve packages: %w", r.blame(err))
	}
	res.Packages = installed(out)
	if len(res.Packages) == 0 {
		return resolution{}, errors.New("resolve packages: apt-get names nothing to install: run apt-get update")
	}
	return res, nil
}

func simulateArgs(list string) []string {
	return []string{"apt-get", "--simulate",
		"-o", "Dir::State::status=/dev/null", // as if no package were installed
		"-o", "Dir::State::extended_states=/dev/null",
		"-o", "Dir::Etc::sourcelist=" + list, "-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::Etc::preferences=/dev/null", "-o", "Dir::Etc::preferencesparts=/dev/null",
		"-o", "APT::Install-Recommends=false",
		"install", "--"}
}

func installed(simulated []byte) []string {
	var all []string
	for line := range bytes.Lines(simulated) {
		if m := instRE.FindSubmatch(line); m != nil {
			all = append(all, string(m[1])+"="+string(m[2]))
		}
	}
	slices.Sort(all)
	return all
}

// blame finds the recipe's error in a tool's output: an unknown package, with its line, or a message of
// finish.sh.
func (r *Recipe) blame(err error) error {
	var failed *debtool.Error
	if !errors.As(err, &failed) {
		return err
	}
	for _, line := range failed.Tail {
		if fault, ok := strings.CutPrefix(line, "forkd: "); ok { // message of finish.sh
			return fmt.Errorf("%w: %s: %s", ErrRecipe, r.path, fault)
		}
		m := unknownRE.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := m[1] + m[2] + m[3]
		for _, p := range r.Packages {
			if p.Value == name {
				return fmt.Errorf("%w: %s: package %s does not exist in Debian %s (if it is new: run apt-get update)",
					ErrRecipe, r.place(p), name, r.Suite)
			}
		}
	}
	return err
}
