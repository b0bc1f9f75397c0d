package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Root is one daemon's part of the hierarchy. It has a group for each VM. A tenant's groups are in a group with
// the tenant's weight. The groups of a tree of forks with a budget are in a group with that budget. Its methods
// are safe for concurrent use.
type Root struct {
	place place
	dir   string
	have  []Controller
	next  atomic.Uint64

	// making is held while a group is created in surrounding groups, or while they are removed.
	making  sync.Mutex
	weights map[string]int // of tenants; the kernel's default for the others. Guarded by making

	moving sync.Mutex // held while a process is moved: the kernel moves one at a time, and each blocks a thread

	mu   sync.Mutex // guards the fields below
	left []string   // names of groups that could not be removed yet
}

// Open creates the part of the hierarchy with this name, below the group delegated to this process, or finds the
// part of an earlier daemon. Unless the hierarchy's root was delegated, this process moves into a group of its
// own there.
func Open(name string) (*Root, error) {
	p, err := findPlace()
	if err != nil {
		return nil, err
	}
	return open(p, name)
}

// OpenAt creates a part of the hierarchy below a group that was delegated to this process's user,
// apart from the group this process is in. dir is the group's directory. This process stays where it
// is; to start processes there, its user needs to write to cgroup.procs of dir and of the nearest
// group around both: "delegation containment" of cgroups(7).
func OpenAt(dir string) (*Root, error) {
	if err := canStartInside(); err != nil {
		return nil, err
	}
	p := place{dir: dir, apart: true}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
		return nil, fmt.Errorf("%s is not a cgroup: %w", dir, err)
	}
	return open(p, vmsGroup)
}

// vmsGroup is the name of the part below a group that was delegated for VMs.
const vmsGroup = "vms"

func open(p place, name string) (*Root, error) {
	r := &Root{place: p, dir: filepath.Join(p.dir, name), weights: map[string]int{}}
	if err := os.Mkdir(r.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err := p.vacate(); err != nil {
		return nil, errors.Join(err, os.Remove(r.dir))
	}
	// Controllers that cannot be enabled are missing from have, which callers check.
	_, _ = enable(p.dir), enable(r.dir)
	var err error
	if r.have, err = listed(r.dir, "cgroup.subtree_control"); err != nil {
		return nil, err
	}
	return r, nil
}

// Controllers returns the groups' controllers.
func (r *Root) Controllers() []Controller { return slices.Clone(r.have) }

// Dir returns the directory of the groups.
func (r *Root) Dir() string { return r.dir }

// Tree is the group of a tree with a budget. The zero value means no group.
type Tree struct {
	Name   string // lowercase letters, digits and dashes
	Limits Limits // for all groups in it together
}

// New creates a group with these limits. It is in the tree's group, and that one is in the tenant's. An empty
// tenant is the operator, who has no surrounding group. A limit without a controller is an error.
func (r *Root) New(tenant string, tree Tree, l Limits) (*Group, error) {
	if err := errors.Join(checkTenant(tenant), tree.Limits.Check(r.have), l.Check(r.have)); err != nil {
		return nil, err
	}
	g, err := r.make(tenant, tree)
	if err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	if err := g.Set(l); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

// make creates a group without limits, and its surrounding groups. They are removed with the last group in them.
func (r *Root) make(tenant string, tree Tree) (*Group, error) {
	r.making.Lock()
	defer r.making.Unlock()
	around := ""
	if tenant != "" {
		around = tenantName(tenant)
		if err := r.makeAround(around, Limits{Weight: r.weights[tenant]}.Only(r.have)); err != nil {
			return nil, err
		}
	}
	if tree.Name != "" {
		around = filepath.Join(around, treePrefix+tree.Name)
		if err := r.makeAround(around, tree.Limits); err != nil {
			return nil, err
		}
	}
	for {
		name := filepath.Join(around, fmt.Sprintf("v%08d", r.next.Add(1)))
		err := os.Mkdir(filepath.Join(r.dir, name), 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue // of an earlier daemon
		}
		return &Group{root: r, name: name}, err
	}
}

// makeAround creates a surrounding group if it is missing.
func (r *Root) makeAround(name string, l Limits) error {
	g := &Group{root: r, name: name}
	err := os.Mkdir(g.dir(), 0o755)
	if errors.Is(err, fs.ErrExist) {
		return enable(g.dir()) // an earlier daemon may have ended in between
	}
	if err != nil {
		return err
	}
	if err := errors.Join(enable(g.dir()), g.Set(l)); err != nil {
		return errors.Join(err, os.Remove(g.dir()))
	}
	return nil
}

// Find returns a group created by New, perhaps in an earlier daemon. It returns nil if the name is invalid.
func (r *Root) Find(name string) *Group {
	if !groupName.MatchString(name) {
		return nil
	}
	return &Group{root: r, name: name}
}

// Sweep removes all groups except the used ones, by name. Groups with processes stay.
func (r *Root) Sweep(used map[string]bool) error {
	var errs []error
	for _, around := range []string{"", "tree-*", "tenant-*", "tenant-*/tree-*"} {
		dirs, err := filepath.Glob(filepath.Join(r.dir, around, "v*"))
		errs = append(errs, err)
		for _, dir := range dirs {
			if g := r.Find(strings.TrimPrefix(dir, r.dir+"/")); g != nil && !used[g.name] {
				errs = append(errs, g.Remove())
			}
		}
	}
	r.making.Lock()
	defer r.making.Unlock()
	for _, around := range []string{"tree-*", "tenant-*/tree-*", "tenant-*"} { // inner ones first
		dirs, err := filepath.Glob(filepath.Join(r.dir, around))
		errs = append(errs, err)
		for _, dir := range dirs {
			_ = os.Remove(dir) // fails if it still has groups in it
		}
	}
	return errors.Join(errs...)
}

// Close removes the daemon's part if it is empty. VMs outlive a daemon and keep it.
func (r *Root) Close() {
	r.retry()
	_ = os.Remove(r.dir)
}

// retry tries again to remove groups that could not be removed before.
func (r *Root) retry() {
	r.mu.Lock()
	names := r.left
	r.left = nil
	r.mu.Unlock()
	for _, name := range names {
		if g := (&Group{root: r, name: name}); errors.Is(g.rmdir(), unix.EBUSY) {
			r.later(name)
		}
	}
}

func (r *Root) later(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = append(r.left, name)
}
