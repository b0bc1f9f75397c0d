package e2bapi

import (
	"context"

	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/tenancy"
)

// whole has the roles of the engine that this package uses.
type whole struct {
	roles.Forks
	roles.Listing
	roles.Lifetimes
	roles.Consoles
	roles.Captures
	roles.Catalog
	roles.Deletion
	roles.Creation
	roles.Networks
	sandbox.AgentDialer
}

// EngineOf returns the Engine with these roles.
func EngineOf(e roles.Engine) Engine { return wholeOf(e) }

func wholeOf(e roles.Engine) whole {
	return whole{e.Sandboxes, e.Sandboxes, e.Sandboxes, e.Sandboxes, e.Branches, e.Snapshots, e.Snapshots, e.Snapshots,
		e.Networks, e.Guests}
}

// view is the engine for one principal, with its room for uploads.
type view struct {
	whole
	room  func(context.Context) error
	alive func() bool
}

// UploadRoom returns an error if the principal may not upload now.
func (v view) UploadRoom(ctx context.Context) error { return v.room(ctx) }

// KeyAlive reports whether the principal's key is still valid.
func (v view) KeyAlive() bool { return v.alive() }

// EngineFor returns the Engine as a principal may see it.
func EngineFor(v *tenancy.View) Engine { return view{wholeOf(v.Engine), v.UploadRoom, v.KeyAlive} }
