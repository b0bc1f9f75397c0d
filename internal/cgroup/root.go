package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Root is one daemon's part of the hierarchy: a group for each VM, and one around those of a
// tree of forks that has a budget. Its methods are safe for concurrent use.
type Root struct {
	place place
	dir   string
	have  []Controller
	next  atomic.Uint64

	mu   sync.Mutex // guards what follows
	left []string   // groups that could not be removed yet, by name
}

// groupName is that of a group for one VM, alone or in a tree's.
var groupName = regexp.MustCompile(`^(tree-[0-9a-z-]{1,64}/)?v[0-9]{8,20}$`)

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
	r := &Root{place: p, dir: filepath.Join(p.dir, name)}
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

// New makes a group with these limits, in that tree's. A limit without a controller is an error.
func (r *Root) New(tree Tree, l Limits) (*Group, error) {
	if err := errors.Join(tree.Limits.Check(r.have), l.Check(r.have)); err != nil {
		return nil, err
	}
	for {
		if err := r.makeTree(tree); err != nil {
			return nil, err
		}
		name := filepath.Join(treeName(tree.Name), fmt.Sprintf("v%08d", r.next.Add(1)))
		err := os.Mkdir(filepath.Join(r.dir, name), 0o755)
		switch {
		case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist) && tree.Name != "":
			continue // an earlier daemon's; or the last other group of the tree went, and the tree's with it
		case err != nil:
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		g := &Group{root: r, name: name}
		if err := g.Set(l); err != nil {
			return nil, errors.Join(err, g.Remove())
		}
		return g, nil
	}
}

// makeTree makes the group of a tree, if it is not there. It goes with the last group in it.
func (r *Root) makeTree(tree Tree) error {
	if tree.Name == "" {
		return nil
	}
	dir := filepath.Join(r.dir, treeName(tree.Name))
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if err := enable(dir); err != nil {
		return err
	}
	return (&Group{root: r, name: treeName(tree.Name)}).Set(tree.Limits)
}

func treeName(tree string) string {
	if tree == "" {
		return ""
	}
	return "tree-" + tree
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
	for _, pattern := range []string{"v*", "tree-*/v*"} {
		dirs, err := filepath.Glob(filepath.Join(r.dir, pattern))
		errs = append(errs, err)
		for _, dir := range dirs {
			if g := r.Find(strings.TrimPrefix(dir, r.dir+"/")); g != nil && !used[g.name] {
				errs = append(errs, g.Remove())
			}
		}
	}
	trees, err := filepath.Glob(filepath.Join(r.dir, "tree-*"))
	for _, dir := range trees {
		_ = os.Remove(dir) // one with groups in it stays
	}
	return errors.Join(append(errs, err)...)
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
