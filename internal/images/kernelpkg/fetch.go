package kernelpkg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/forkd/forkd/internal/images/debtool"
)

const (
	// Meta is Debian's package that depends on the newest cloud kernel.
	Meta = "linux-image-cloud-amd64"
	// PreferredSeries is used if no series is requested and the package sources have it. It is the first series
	// with all features that forkd uses (PAGEMAP_SCAN, the VM generation ID driver).
	PreferredSeries = "6.12"
	arch            = "amd64"
)

// ErrNoKernel is wrapped by errors about kernels missing in the package sources.
var ErrNoKernel = errors.New("no such kernel in the package sources")

// Candidate is a kernel package available in the host's package sources.
type Candidate struct {
	Package string // linux-image-6.12.95+deb12-cloud-amd64
	Version string // 6.12.95-1~bpo12+1
}

// FileName returns the name of the package's file, in apt's format.
func (c Candidate) FileName() string {
	return c.Package + "_" + strings.ReplaceAll(c.Version, ":", "%3a") + "_" + arch + ".deb"
}

// Find asks the host's apt for a kernel: of a series such as "6.12" or "6.1", or of a package by its full name,
// "linux-image-6.1.0-50-cloud-amd64". If the name is empty, it returns the preferred series if available, or else
// the newest one.
func Find(ctx context.Context, run debtool.Runner, kernel string) (Candidate, error) {
	pkg := Meta
	if strings.HasPrefix(kernel, "linux-image-") {
		pkg = kernel
	} else if err := checkSeries(kernel); err != nil {
		return Candidate{}, err
	}
	stanzas, err := show(ctx, run, pkg)
	if err != nil {
		return Candidate{}, fmt.Errorf("find kernel package %s: %w", pkg, err)
	}
	all := candidates(stanzas)
	if len(all) == 0 {
		return Candidate{}, fmt.Errorf("find kernel: %w: %s; run `%s`, or apt-get update", ErrNoKernel, pkg, debtool.Installer())
	}
	if pkg == kernel {
		return all[0], nil
	}
	return choose(all, kernel)
}

// choose returns the first kernel of the series: apt lists the newest first.
func choose(all []Candidate, series string) (Candidate, error) {
	want := series
	if want == "" {
		want = PreferredSeries
	}
	var have []string
	for _, c := range all {
		if c.inSeries(want) {
			return c, nil
		}
		have = append(have, c.Version)
	}
	if series == "" {
		return all[0], nil
	}
	err := fmt.Errorf("find kernel: %w: %s has no version %s (it has %s)",
		ErrNoKernel, Meta, series, strings.Join(have, ", "))
	if release := codename(); series == PreferredSeries && release == "bookworm" {
		err = fmt.Errorf("%w; it is in %[2]s-backports: run `%[3]s`, or add %[2]s-backports to the Suites of your Debian "+
			"mirror in /etc/apt/sources.list.d and run apt-get update", err, release, debtool.Installer())
	}
	return Candidate{}, err
}

func (c Candidate) inSeries(series string) bool {
	rest, ok := strings.CutPrefix(c.Version, series)
	return ok && rest != "" && !(rest[0] >= '0' && rest[0] <= '9')
}

func checkSeries(s string) error {
	if len(s) > 32 || strings.Trim(s, "0123456789.") != "" || strings.Trim(s, ".") != s {
		return fmt.Errorf("find kernel: %q is neither a series like 6.12 nor a package name linux-image-*", s)
	}
	return nil
}

// show returns apt's stanzas of a package, newest version first.
func show(ctx context.Context, run debtool.Runner, pkg string) ([]map[string]string, error) {
	out, err := run(ctx, debtool.Command{Args: []string{"apt-cache", "show", "--", pkg}, Package: "apt"})
	var failed *debtool.Error
	if errors.As(err, &failed) && strings.Contains(strings.Join(failed.Tail, "\n"), "No packages found") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return stanzas(string(out)), nil
}

// stanzas parses deb822 text. It ignores continuation lines.
func stanzas(text string) []map[string]string {
	var all []map[string]string
	var current map[string]string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			current = nil
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			continue
		}
		if current == nil {
			current = map[string]string{}
			all = append(all, current)
		}
		current[key] = strings.TrimSpace(value)
	}
	return all
}

// candidates replaces a meta package by the image that it depends on: "linux-image-X (= VERSION)".
func candidates(stanzas []map[string]string) []Candidate {
	var all []Candidate
	for _, s := range stanzas {
		if s["Package"] != Meta {
			all = append(all, Candidate{Package: s["Package"], Version: s["Version"]})
			continue
		}
		for dep := range strings.SplitSeq(s["Depends"], ",") {
			name, rest, _ := strings.Cut(strings.TrimSpace(dep), " ")
			if !strings.HasPrefix(name, "linux-image-") {
				continue
			}
			version := s["Version"]
			if v, ok := strings.CutPrefix(strings.TrimSpace(rest), "(= "); ok {
				version = strings.TrimSuffix(v, ")")
			}
			all = append(all, Candidate{Package: name, Version: version})
		}
	}
	return all
}

// Fetch returns the path of the package's file in dir. If the file is missing, it downloads it with the host's
// apt, which checks it against the signed package lists. The file appears under its name only when it is
// complete.
func Fetch(ctx context.Context, run debtool.Runner, c Candidate, dir string) (string, error) {
	path := filepath.Join(dir, c.FileName())
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := debtool.Download(ctx, run, c.Package+"="+c.Version, path); err != nil {
		return "", err
	}
	return path, nil
}

// codename returns the host's Debian release name, or an empty string.
func codename() string {
	f, err := os.Open("/etc/os-release")
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "VERSION_CODENAME="); ok {
			return strings.Trim(v, `"`)
		}
	}
	return ""
}
