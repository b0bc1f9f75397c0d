package engine

import (
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/network"
)

// Roles returns the rooms by the roles of the engine's callers.
func (e *Engine) Roles() roles.Engine {
	return roles.Engine{
		Snapshots: roles.SnapshotParts{Catalog: e.Accounts, Deletion: e.Deletion, Creation: e.Ops, Travels: e.Travels},
		Sandboxes: roles.SandboxParts{Forks: e.Ops, Listing: e, Accounts: e.Accounts, Lifetimes: e.Watch,
			Trees: e.Trees, Pauses: e.Pauses, Moves: e.Travels, Consoles: e.Calls},
		Branches: roles.BranchParts{Captures: e.Ops, Promotions: e.Promotions, Groups: e.Belongings.Groups},
		Diffs:    e.Ops, Receipts: e.Ops, Guests: e.Calls, Pools: e.Sizes, Hosts: e.Meter, Networks: e.Policies,
		Labels: e.Labels,
	}
}

// List returns all sandboxes, oldest first, including failed ones.
func (e *Engine) List() []sandbox.Info {
	return network.Traffic(e.wires, e.sandboxes.WithUse(e.sandboxes.List()))
}

// Get returns one sandbox.
func (e *Engine) Get(id string) (sandbox.Info, error) {
	_, info, err := e.sandboxes.Find(id)
	return info, err
}
