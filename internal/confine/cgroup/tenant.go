package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// SetTenantWeight sets the share that all groups of a tenant have together where CPUs are short, against
// other tenants' and against each of the operator's. It holds for the group that is there and for a later one.
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
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // that of a tenant without sandboxes comes with the first
		return err
	}
	r.weights[tenant] = weight
	return nil
}

// errNoProcess is of a move out of a group whose processes have ended.
var errNoProcess = errors.New("it has no processes any more")

// Move moves the processes of a group to another one. What memory they have been charged for stays with
// the old group until they free it, also when that is removed.
func (g *Group) Move(to *Group) error {
	g.root.moving.Lock()
	defer g.root.moving.Unlock()
	const passes = 100 // a process that is made meanwhile is in the old group
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
			if pid == "0" { // of another pid namespace; to write it would move this process
				return fmt.Errorf("move out of cgroup %s: a process in it is not visible here", g.name)
			}
			if err := set(to.dir(), "cgroup.procs", pid); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("move out of cgroup %s: it always has another process", g.name)
}
