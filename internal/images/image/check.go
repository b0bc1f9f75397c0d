package image

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/leaf/vmspec"
)

var (
	nameRE    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	suiteRE   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	packageRE = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,127}$`) // Debian policy 5.6.1
	userRE    = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	envRE     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// languages are python, with a warm interpreter in the agent, and programs that run to their end.
var languages = []string{"python", "command", "node"}

const (
	defaultUser      = "user"
	defaultMemoryMiB = 256
	maxWarm          = 64 << 10
	maxContent       = 64 << 20 // bytes of one file in a recipe
)

// CheckName returns an error if an image cannot have this name.
func CheckName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%w: %q: want 1 to 64 letters, digits, _ or -", ErrName, name)
	}
	return nil
}

func (r *Recipe) setDefaults() {
	if r.User == "" {
		r.User = defaultUser
	}
	if r.Workdir == "" {
		r.Workdir = "/home/" + r.User
		if r.User == "root" {
			r.Workdir = "/root"
		}
	}
	if r.MemoryMiB == 0 {
		r.MemoryMiB = defaultMemoryMiB
	}
	if r.VCPUs == 0 {
		r.VCPUs = 1
	}
	if r.Compression == "" {
		r.Compression = "none"
	}
	if len(r.Modules) > 0 && !slices.Contains(r.packageNames(), modprobePackage) {
		r.Packages = append(r.Packages, Text{Value: modprobePackage, Line: r.Modules[0].Line})
	}
}

func (r *Recipe) check() error {
	switch {
	case !nameRE.MatchString(r.Name):
		return at(0, "name is %q, want 1 to 64 letters, digits, _ or -", r.Name)
	case r.Suite == "":
		return at(0, "suite is missing: the Debian release to build from, like bookworm")
	case !suiteRE.MatchString(r.Suite):
		return at(0, "suite is %q, want a Debian release like bookworm", r.Suite)
	case !userRE.MatchString(r.User):
		return at(0, "user is %q, want an account's name", r.User)
	case !cleanAbs(r.Workdir):
		return at(0, "workdir is %q, want a clean absolute path", r.Workdir)
	case !slices.Contains([]string{"none", "lz4"}, r.Compression):
		return at(0, "compression is %q, want none or lz4", r.Compression)
	}
	shape := vmspec.Shape{MemoryMiB: r.MemoryMiB, VCPUs: r.VCPUs, Disks: 1}
	if err := shape.Validate(); err != nil {
		return at(0, "%v", err)
	}
	for _, check := range []func() error{
		r.checkPackages, r.checkModules, r.checkDiskDirs, r.checkFiles, r.checkEnv, r.checkLimits,
		r.checkService, r.checkWarm, r.checkDisk,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recipe) checkPackages() error {
	for _, p := range r.Packages {
		if !packageRE.MatchString(p.Value) {
			return at(p.Line, "%q is not the name of a Debian package", p.Value)
		}
	}
	for key, list := range map[string][]Text{"pip": r.Pip, "pip_no_deps": r.PipNoDeps} {
		for _, p := range list {
			if !requirementRE.MatchString(p.Value) {
				return at(p.Line, "%s has %q, want a package of PyPI, as name or name==version", key, p.Value)
			}
		}
	}
	for _, p := range r.Npm {
		if !npmRE.MatchString(p.Value) {
			return at(p.Line, "npm has %q, want a package of the npm registry, as name or name@version", p.Value)
		}
	}
	return nil
}

func (r *Recipe) checkFiles() error {
	seen := map[string]bool{}
	for i, f := range r.Files {
		p := f.Path.Value
		switch {
		case p == "":
			return at(0, "files[%d] has no path", i)
		case !cleanAbs(p) || p == "/":
			return at(f.Path.Line, "path is %q, want a clean absolute path", p)
		case reserved(p):
			return at(f.Path.Line, "path %s is made by forkd or the kernel", p)
		case seen[p]:
			return at(f.Path.Line, "path %s is there twice", p)
		case (f.Content != nil) == (f.Source != ""):
			return at(f.Path.Line, "file %s: want one of content and source", p)
		case f.Source != "" && !filepath.IsLocal(f.Source):
			return at(f.Path.Line, "source is %q, want a path below the recipe's folder", f.Source)
		}
		if _, err := f.mode(); err != nil {
			return at(f.Mode.Line, "%v", err)
		}
		seen[p] = true
	}
	return nil
}

// mode returns the file's permission bits. They are octal, with or without quotes and a leading 0.
func (f File) mode() (int64, error) {
	if f.Mode.Value == "" {
		return 0o644, nil
	}
	m, err := strconv.ParseUint(strings.TrimPrefix(f.Mode.Value, "0o"), 8, 16)
	if err != nil || m > 0o7777 {
		return 0, fmt.Errorf("mode is %q, want octal permissions like 0755", f.Mode.Value)
	}
	return int64(m), nil
}

func cleanAbs(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) < 1024 && !strings.ContainsAny(p, "\x00\n")
}

// reserved reports whether forkd or the running guest controls the content of a path.
func reserved(p string) bool {
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/tmp"} {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			return true
		}
	}
	return p == guestFile || p == "/etc/machine-id"
}

func (r *Recipe) checkEnv() error {
	for k, v := range r.Env {
		if !envRE.MatchString(k) {
			return at(0, "env has the name %q, want letters, digits and _", k)
		}
		if strings.ContainsRune(v, 0) || len(v) > 32<<10 {
			return at(0, "env %s has a value that no program could be given", k)
		}
	}
	return nil
}

func (r *Recipe) checkWarm() error {
	for i, w := range r.Warm {
		if !slices.Contains(languages, w.Language) {
			return at(0, "warm[%d] has the language %q, want one of: %s", i, w.Language, strings.Join(languages, ", "))
		}
		if strings.TrimSpace(w.Code) == "" || len(w.Code) > maxWarm {
			return at(0, "warm[%d] has %d bytes of code, want 1 to %d", i, len(w.Code), maxWarm)
		}
	}
	return nil
}
