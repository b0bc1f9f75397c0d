package engine

import (
	"context"

	"github.com/forkd/forkd/internal/engine/catalog"
	"github.com/forkd/forkd/internal/engine/guestfork"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/engine/op"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/sched"
)

// The tests of this folder that look behind the facade reach the rooms through these methods.

func (e *Engine) Table() *sandboxes.Table           { return e.sandboxes }
func (e *Engine) Families() *guestfork.Families     { return e.families }
func (e *Engine) SnapshotCatalog() *catalog.Catalog { return e.catalog }
func (e *Engine) ForkTraffic() *sched.Traffic       { return &e.traffic }
func (e *Engine) OpsConfig() *op.Config             { return e.ops }
func (e *Engine) ReadyShells() []*launch.VM         { return e.pools.Shells() }
func (e *Engine) Background() context.Context       { return e.background }
func (e *Engine) BeginCall() (func(), error)        { return e.beginCall() }

func (e *Engine) BeginRequest(ctx context.Context) (context.Context, func(), error) {
	return e.begin(ctx)
}
