package snapshots

import (
	"context"

	"github.com/forkd/forkd/internal/api/peers"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/workspace"
)

// Routes adds the routes of snapshots.
type Routes struct {
	Answers respond.Answers
	View    routing.View
	Files   *GuestFiles // may be nil
	// Secrets returns the secrets of guests that exist now. It may be nil.
	Secrets func() []string
	E2B     Carried       // may be nil
	Peers   *peers.Client // nil: copies are refused
	// Publish lets all tenants fork a snapshot, or no longer.
	Publish    func(ctx context.Context, tag string, public bool) (sandbox.SnapshotInfo, error)
	Sent       func(bytes int64) // counts bytes sent to other daemons
	Workspaces *workspace.Book
}

// Add adds the routes.
func (f Routes) Add(rt *routing.Router) {
	created := &creations{f.Answers, rt}
	(&snapshotRoutes{f.View.Snapshots, f.Files, created}).add(rt)
	(&diffRoutes{f.View.Diffs}).add(rt)
	(&storeRoutes{f.View.Snapshots, created}).add(rt)
	(&travelRoutes{f.View.Snapshots, f.Secrets}).add(rt)
	(&labelRoutes{f.View.Labels}).add(rt)
	(&renameRoutes{f.View, f.Workspaces}).add(rt)
	(&receiptRoutes{f.View.Receipts}).add(rt)
	(&poolRoutes{f.View.Pools}).add(rt)
	(&publishRoutes{f.Publish}).add(rt)
	newArtifactRoutes(f).add(rt)
}
