package fakeengine

import (
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Flat is an engine with all roles in one object. Tests embed it to replace one method.
type Flat interface {
	roles.Snapshots
	roles.Diffs
	roles.Sandboxes
	roles.Branches
	roles.Receipts
	sandbox.Guests
	roles.Pools
	roles.Hosts
	roles.Networks
	roles.Labels
}

// Roles returns an engine whose roles are all filled by e.
func Roles(e Flat) roles.Engine {
	return roles.Engine{Snapshots: e, Diffs: e, Sandboxes: e, Branches: e, Receipts: e, Guests: e, Pools: e, Hosts: e,
		Networks: e, Labels: e}
}
