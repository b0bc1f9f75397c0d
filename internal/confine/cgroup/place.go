package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// ErrUnsupported means that this host, or the part delegated on it, lacks a feature.
var ErrUnsupported = errors.New("not supported here")

// Controller is a kernel controller, named as in cgroup.controllers.
type Controller string

const (
	Memory Controller = "memory"
	CPU    Controller = "cpu"
	PIDs   Controller = "pids"
	IO     Controller = "io"
)

// controllers are the controllers used by Limits.
var controllers = []Controller{Memory, CPU, PIDs, IO}

// daemonLeaf is the daemon's own group, needed where its parent cannot have both processes and children ("no
// internal processes": cgroups(7)). A systemd unit names it with DelegateSubgroup.
const daemonLeaf = "daemon"

// place is a group in which groups can be created.
type place struct {
	dir  string // below the mount of cgroup2
	root bool   // it is the root of the hierarchy, where internal processes are allowed
	// apart is set if this process is elsewhere, and its group belongs to others.
	apart bool
}

// systemd reports whether systemd manages the hierarchy and delegates parts of it: sd_booted(3).
func systemd() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

// findPlace finds this process's part of the hierarchy. Where no other manager owns the hierarchy, as in the
// machine, it is the root.
func findPlace() (place, error) {
	if err := canStartInside(); err != nil {
		return place{}, err
	}
	self, err := procfs.Self()
	if err != nil {
		return place{}, err
	}
	own, err := ownPath(self)
	if err != nil {
		return place{}, err
	}
	mounts, err := self.MountInfo()
	if err != nil {
		return place{}, err
	}
	for _, m := range mounts {
		if m.FSType != "cgroup2" {
			continue
		}
		if p := at(m.MountPoint); p.root && m.Root == "/" && !systemd() {
			return p, nil
		}
		if below, ok := strings.CutPrefix(own+"/", strings.TrimSuffix(m.Root, "/")+"/"); ok {
			return at(filepath.Join(m.MountPoint, below)), nil
		}
	}
	return place{}, fmt.Errorf("no cgroup2 file system that shows this process's group is mounted: %w", ErrUnsupported)
}

// ownPath returns this process's group in the hierarchy of version 2.
func ownPath(self procfs.Proc) (string, error) {
	groups, err := self.Cgroups()
	if err != nil {
		return "", err
	}
	for _, g := range groups {
		if g.HierarchyID == 0 {
			return g.Path, nil
		}
	}
	return "", fmt.Errorf("the kernel has no cgroup v2: %w", ErrUnsupported)
}

// at returns the place for a process in dir.
func at(dir string) place {
	if filepath.Base(dir) == daemonLeaf { // an earlier daemon, or systemd, put it there
		dir = filepath.Dir(dir)
	}
	_, err := os.Stat(filepath.Join(dir, "cgroup.type"))
	return place{dir: dir, root: errors.Is(err, fs.ErrNotExist)}
}

// enable enables the controllers for the groups below dir, as far as dir has them.
func enable(dir string) error {
	has, err := listed(dir, "cgroup.controllers")
	if err != nil {
		return err
	}
	on, err := listed(dir, "cgroup.subtree_control")
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range controllers { // separately, so that a failure affects only one
		if slices.Contains(has, c) && !slices.Contains(on, c) {
			errs = append(errs, set(dir, "cgroup.subtree_control", "+"+string(c)))
		}
	}
	return errors.Join(errs...)
}

// processes counts the processes in the place itself. It returns an error if there are others besides this one.
func (p place) processes() (n int, err error) {
	b, err := os.ReadFile(filepath.Join(p.dir, "cgroup.procs"))
	if err != nil {
		return 0, err
	}
	pids := strings.Fields(string(b))
	if n = len(pids); n > 1 || n == 1 && pids[0] != strconv.Itoa(os.Getpid()) {
		return n, fmt.Errorf("cgroup %s has other processes in it than this one (a service with Delegate=yes has not): %w",
			p.dir, ErrUnsupported)
	}
	return n, nil
}

// vacate moves this process out of the place, unless processes are allowed there.
func (p place) vacate() error {
	if p.root || p.apart {
		return nil
	}
	if n, err := p.processes(); err != nil || n == 0 {
		return err
	}
	leaf := filepath.Join(p.dir, daemonLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return set(leaf, "cgroup.procs", "0") // 0 means the writing process
}

func listed(dir, file string) ([]Controller, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	var out []Controller
	for _, name := range strings.Fields(string(b)) {
		out = append(out, Controller(name))
	}
	return out, nil
}

// set writes a file of a group.
func set(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set %s of cgroup %s to %q: %w", file, filepath.Base(dir), value, err)
	}
	return nil
}
