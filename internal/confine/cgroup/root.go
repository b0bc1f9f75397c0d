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

// Root is one daemon's part of the hierarchy: a group for each VM. Around those of a tenant is a group
// with the tenant's weight, and around those of a tree of forks that has a budget is one with that. Its
// methods are safe for concurrent use.
type Root struct {
	place place
	dir   string
	have  []Controller
	next  atomic.Uint64

	// making is held while a group is made in groups around it, or those are removed.
	making  sync.Mutex
	weights map[string]int // of tenants; one that is not in it has the kernel's. Guarded by making

	moving sync.Mutex // held while a process is moved: the kernel moves one at a time, and waits in a thread

	mu   sync.Mutex // guards what follows
	left []string   // groups that could not be removed yet, by name
}

// Open makes the part of the hierarchy of that name, below what was delegated to this process,
// or finds the one that an earlier daemon made. If it is not the hierarchy's root that was
// delegated, this process moves into a group of its own there.
func Open(name string) (*Root, error) {
	p, err := findPlace()
	if err != nil {
		return nil, err
	}
	return open(p, name)
}

func open(p place, name string) (*Root, error) {
	r := &Root{place: p, dir: filepath.Join(p.dir, name), weights: map[string]int{}}
	if err := os.Mkdir(r.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err := p.vacate(); err != nil {
		return nil, errors.Join(err, os.Remove(r.dir))
	}
	// What cannot be enabled is missing from have, which is what is asked.
	_, _ = enable(p.dir), enable(r.dir)
	var err error
	if r.have, err = listed(r.dir, "cgroup.subtree_control"); err != nil {
		return nil, err
	}
	return r, nil
}

// Controllers are those that the groups have.
func (r *Root) Controllers() []Controller { return slices.Clone(r.have) }

// Dir is where the groups are.
func (r *Root) Dir() string { return r.dir }

// Tree is the group around those of a tree that has a budget. The zero value is none.
type Tree struct {
	Name   string // lowercase letters, digits and dashes
	Limits Limits // of all groups in it together
}

// New makes a group with these limits, in that tree's, and that in the tenant's. An empty tenant is the
// operator, who has no group around. A limit without a controller is an error.
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

// make makes a group without limits, and those around it. These go with the last group in them.
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
			continue // an earlier daemon's
		}
		return &Group{root: r, name: name}, err
	}
}

// makeAround makes a group around others, if it is not there.
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

// Find is a group that New made, perhaps of an earlier daemon; nil if no group has such a name.
func (r *Root) Find(name string) *Group {
	if !groupName.MatchString(name) {
		return nil
	}
	return &Group{root: r, name: name}
}

// Sweep removes the groups that are not used, by name. Those that have processes stay.
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
	for _, around := range []string{"tree-*", "tenant-*/tree-*", "tenant-*"} { // of those in others first
		dirs, err := filepath.Glob(filepath.Join(r.dir, around))
		errs = append(errs, err)
		for _, dir := range dirs {
			_ = os.Remove(dir) // one with groups in it stays
		}
	}
	return errors.Join(errs...)
}

// Close removes the daemon's part if nothing is left in it: VMs outlive a daemon, and keep it.
func (r *Root) Close() {
	r.retry()
	_ = os.Remove(r.dir)
}

// retry removes what could not be removed before.
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
