package sandboxes

import (
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/workspace"
)

// Routes adds the routes of sandboxes.
type Routes struct {
	Answers    respond.Answers
	View       routing.View
	Mover      *Mover
	Workspaces *workspace.Book
}

// Add adds the routes.
func (f Routes) Add(rt *routing.Router) {
	(&forkRoutes{Answers: f.Answers, engine: f.View.Sandboxes}).add(rt)
	(&sandboxRoutes{f.View.Sandboxes, f.Mover, f.Workspaces}).add(rt)
	(&keepRoutes{keepEngine(f.View)}).add(rt)
	(&mergeRoutes{mergeEngine(f.View)}).add(rt)
	(&workspaceRoutes{f.View.Sandboxes, f.Workspaces}).add(rt)
	(&branchRoutes{f.View.Branches}).add(rt)
	(&sandboxLabelRoutes{f.View.Labels}).add(rt)
	(&networkRoutes{f.View.Networks}).add(rt)
}
