package e2bapi

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/api/cors"
	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Engine is the domain as this package uses it.
type Engine interface {
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
	List() []sandbox.Info
	Get(id string) (sandbox.Info, error)
	Kill(ctx context.Context, id string) error
	Console(id string) (io.ReadCloser, error)

	Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error)
	CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	SnapshotInfo(ctx context.Context, tag string) (sandbox.SnapshotInfo, error)
	ListSnapshots(ctx context.Context) ([]sandbox.SnapshotInfo, error)
	DeleteSnapshot(ctx context.Context, tag string, opt sandbox.DeleteOptions) error

	SetNetwork(ctx context.Context, id string, req sandbox.NetworkRequest) (sandbox.Network, error)
	DialAgent(ctx context.Context, id string) (net.Conn, error)
}

// Life is until when a sandbox lives, and what happens then.
type Life struct {
	End        time.Time // zero: it does not end by itself
	Pause      bool      // at the end, instead of being killed
	AutoResume bool      // traffic resumes it
	// FilesystemOnly has the pause at the end drop its memory.
	FilesystemOnly bool
}

// Lives pauses and resumes sandboxes and keeps their deadlines.
type Lives interface {
	// Pause returns when the sandbox is paused; with filesystemOnly its memory is dropped.
	Pause(ctx context.Context, id string, filesystemOnly bool) error
	// Resume returns when it runs; one that runs is left alone.
	Resume(ctx context.Context, id string) error
	SetLife(ctx context.Context, id string, l Life) error
	// Settle waits while a sandbox is being paused or resumed. It wakes none.
	Settle(ctx context.Context, id string) error
	// Wake returns nil when a sandbox runs, for a request that needs its guest. It waits while the sandbox is being
	// paused or resumed, and resumes a paused one whose Life has AutoResume. Otherwise it returns ErrNotFound.
	Wake(ctx context.Context, id string) error
	// Touch notes that there was traffic.
	Touch(id string)
}

// Ports carries requests to servers in sandboxes.
type Ports interface {
	// ServePort serves a request to a port; shown is the sandbox's id as the client has it, or
	// empty for one of the native API's.
	ServePort(w http.ResponseWriter, r *http.Request, id, shown string, port uint16)
	// Admits reports whether a request shows the token that a port asks for, if it asks for one.
	Admits(r *http.Request, id string, port uint16) bool
}

// Options is what a Handler is made of.
type Options struct {
	// Engine is all of it: for what has no principal, such as requests to a sandbox's agent.
	Engine  Engine
	Records *records.Store
	// Builds may be nil: then templates cannot be built.
	Builds *build.Store
	// TuneBuilds, if set, changes how they are carried out.
	TuneBuilds func(*build.Config)
	// Lives may be nil: then sandboxes end at their deadlines, and nothing can be paused.
	Lives Lives
	Ports Ports
	// Authenticate says who sends a request to the control API: its context has the principal. An
	// error is answered 401, or with its own GetStatus if it has one.
	Authenticate func(*http.Request) (context.Context, error)
	// View is the engine as the principal in a context of Authenticate's may see it, quotas and all;
	// nil: everybody has all of Engine.
	View func(context.Context) Engine
	// CORS lists the origins whose pages may call the control API.
	CORS cors.Policy
	// Note takes what a request is for the audit log; nil drops it.
	Note func(context.Context, Act)
	// PrivatePorts makes ports of new sandboxes private unless a request says allowPublicTraffic: true.
	PrivatePorts bool
	// Domain is that of host names of ports; empty: clients have to use headers.
	Domain string
	Now    func() time.Time
	// Log gets what goes wrong here; nil drops it.
	Log *slog.Logger
}

func (o Options) complete() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.View == nil {
		o.View = func(context.Context) Engine { return o.Engine }
	}
	if o.Note == nil {
		o.Note = func(context.Context, Act) {}
	}
	return o
}
