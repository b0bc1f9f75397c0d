package cgroup

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Groups around those of VMs begin with these words. No file of the kernel in a group does.
const (
	tenantPrefix = "tenant-"
	treePrefix   = "tree-"
)

var (
	// groupName is that of a group for one VM, from the root's directory on.
	groupName = regexp.MustCompile(`^(tenant-[0-9a-z_]{1,64}/)?(tree-[0-9a-z-]{1,64}/)?v[0-9]{8,20}$`)
	// tenantWord is a tenant's name: that of a key has no other letters.
	tenantWord = regexp.MustCompile(`^[0-9a-z_]{1,64}$`)
)

// checkTenant refuses a name that cannot be part of a group's. An empty one is the operator's.
func checkTenant(tenant string) error {
	if tenant != "" && !tenantWord.MatchString(tenant) {
		return fmt.Errorf("%.80q is no name of a tenant: want 1 to 64 small letters, digits or _", tenant)
	}
	return nil
}

func tenantName(tenant string) string { return tenantPrefix + tenant }

// Tenant is whose the group is; empty: the operator's.
func (g *Group) Tenant() string {
	around, _, _ := strings.Cut(g.name, "/")
	tenant, _ := strings.CutPrefix(around, tenantPrefix)
	if tenant == around {
		return ""
	}
	return tenant
}

// around is the group around it; nil: it is the root's.
func (g *Group) around() *Group {
	if dir := filepath.Dir(g.name); dir != "." {
		return &Group{root: g.root, name: dir}
	}
	return nil
}

// tree is the group of the tree that it is in; nil: it is in no tree with a budget.
func (g *Group) tree() *Group {
	if a := g.around(); a != nil && strings.HasPrefix(filepath.Base(a.name), treePrefix) {
		return a
	}
	return nil
}
