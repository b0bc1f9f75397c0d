package cgroup

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Prefixes of groups around the VMs' groups. No kernel file in a group begins with them.
const (
	tenantPrefix = "tenant-"
	treePrefix   = "tree-"
)

var (
	// groupName matches the name of a VM's group, relative to the root's directory.
	groupName = regexp.MustCompile(`^(tenant-[0-9a-z_]{1,64}/)?(tree-[0-9a-z-]{1,64}/)?v[0-9]{8,20}$`)
	// tenantWord matches the names of tenants, with the letters that a key's tenant may have.
	tenantWord = regexp.MustCompile(`^[0-9a-z_]{1,64}$`)
)

// checkTenant returns an error for a name that cannot be part of a group's name. The empty name is the
// operator's.
func checkTenant(tenant string) error {
	if tenant != "" && !tenantWord.MatchString(tenant) {
		return fmt.Errorf("%.80q is no name of a tenant: want 1 to 64 small letters, digits or _", tenant)
	}
	return nil
}

func tenantName(tenant string) string { return tenantPrefix + tenant }

// Tenant returns the group's tenant; empty for the operator.
func (g *Group) Tenant() string {
	around, _, _ := strings.Cut(g.name, "/")
	tenant, _ := strings.CutPrefix(around, tenantPrefix)
	if tenant == around {
		return ""
	}
	return tenant
}

// around returns the surrounding group, or nil if it is the root's.
func (g *Group) around() *Group {
	if dir := filepath.Dir(g.name); dir != "." {
		return &Group{root: g.root, name: dir}
	}
	return nil
}

// tree returns the group of its tree, or nil if its tree has no budget.
func (g *Group) tree() *Group {
	if a := g.around(); a != nil && strings.HasPrefix(filepath.Base(a.name), treePrefix) {
		return a
	}
	return nil
}
