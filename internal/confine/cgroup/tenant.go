package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// SetTenantWeight sets the CPU share of all groups of a tenant together, relative to other tenants and to each of
// the operator's groups. It applies to the existing group and to later ones.
func (r *Root) SetTenantWeight(tenant string, weight int) error {
	if tenant == "" {
		return errors.New("the operator's sandboxes have no weight together")
	}
	l := Limits{Weight: weight}
	if err := errors.Join(checkTenant(tenant), l.Check(r.have)); err != nil {
		return err
	}
	r.making.Lock()
	defer r.making.Unlock()
	err := (&Group{root: r, name: tenantName(tenant)}).Set(l)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without sandboxes, the group is created with the first one
		return err
	}
	r.weights[tenant] = weight
	return nil
}

// errNoProcess is returned by a move if the group's processes have ended.
var errNoProcess = errors.New("it has no processes any more")

// Move moves a group's processes to another group. Memory already charged stays with the old group until they
// free it, even if that group is removed.
func (g *Group) Move(to *Group) error {
	g.root.moving.Lock()
	defer g.root.moving.Unlock()
	const passes = 100 // a process created meanwhile is in the old group
	for pass := range passes {
		b, err := os.ReadFile(filepath.Join(g.dir(), "cgroup.procs"))
		if err != nil {
			return fmt.Errorf("move out of cgroup %s: %w", g.name, err)
		}
		pids := strings.Fields(string(b))
		if len(pids) == 0 && pass == 0 {
			return fmt.Errorf("move out of cgroup %s: %w", g.name, errNoProcess)
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if pid == "0" { // in another pid namespace; writing 0 would move this process
				return fmt.Errorf("move out of cgroup %s: a process in it is not visible here", g.name)
			}
			if err := set(to.dir(), "cgroup.procs", pid); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("move out of cgroup %s: it always has another process", g.name)
}
