package e2bapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/api/cors"
	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/secrets"
	"github.com/forkd/forkd/internal/domain/volumes"
)

// Engine is the part of the domain this package uses.
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
	sandbox.AgentDialer
}

// Life is a sandbox's end, and the action at it.
type Life struct {
	End        time.Time // zero: no end
	Pause      bool      // pause at the end, instead of a kill
	AutoResume bool      // traffic resumes it
	// FilesystemOnly means that the pause at the end drops its memory.
	FilesystemOnly bool
}

// Lives pauses and resumes sandboxes and keeps their deadlines.
type Lives interface {
	// Pause returns when the sandbox is paused. With filesystemOnly its memory is dropped.
	Pause(ctx context.Context, id string, filesystemOnly bool) error
	// Resume returns when the sandbox runs. It leaves a running sandbox unchanged.
	Resume(ctx context.Context, id string) error
	SetLife(ctx context.Context, id string, l Life) error
	// Settle waits while a sandbox is being paused or resumed. It does not resume one.
	Settle(ctx context.Context, id string) error
	// Wake returns nil when a sandbox runs, for a request that needs its guest. It waits while the
	// sandbox is being paused or resumed, and resumes a paused one if its Life has AutoResume.
	// Otherwise it returns ErrNotFound.
	Wake(ctx context.Context, id string) error
	// Touch records traffic.
	Touch(id string)
}

// Ports carries requests to servers in sandboxes.
type Ports interface {
	// ServePort serves a request to a port, whose server speaks TLS if overTLS is set. shown is the sandbox's ID in the client's form, or
	// empty for a sandbox of the native API.
	ServePort(w http.ResponseWriter, r *http.Request, id, shown string, port uint16, overTLS bool)
	// Admits reports whether a request shows the token of a port, or the port needs none.
	Admits(r *http.Request, id string, port uint16) bool
}

// Options are the parts of a Handler.
type Options struct {
	// Engine is the whole engine, for requests without a principal, such as requests to a sandbox's
	// agent.
	Engine Engine
	// Records holds E2B's facts about sandboxes, including their tokens.
	Records *records.Store
	// Builds may be nil. Templates then cannot be built.
	Builds *build.Store
	// Registry has the images of registries for builds. If nil, builds cannot use them.
	Registry build.Registry
	// TuneBuilds, if not nil, changes the settings of builds.
	TuneBuilds func(*build.Config)
	// Secrets holds the tenants' secrets. If nil, the daemon keeps no secrets.
	Secrets *secrets.Store
	// Volumes holds the tenants' volumes. Without a store the server has none.
	Volumes volumes.Tenants
	// Lives may be nil. Sandboxes then end at their deadlines, and cannot be paused.
	Lives Lives
	// Fetch takes a paused sandbox from one of the daemons with these URLs, or ends an earlier attempt. It may be nil.
	Fetch func(ctx context.Context, id string, peers []string) error
	// Ports serves the requests to ports of sandboxes, except to the agent's.
	Ports Ports
	// Authenticate authenticates a request to the control API. The returned context has the
	// principal. The status of an error is its GetStatus, or 401 if it has none.
	Authenticate func(*http.Request) (context.Context, error)
	// View returns the engine as the principal in a context of Authenticate may see it, with
	// quotas. If nil, every client has the whole Engine.
	View func(context.Context) Engine
	// CORS lists the origins whose pages may call the control API.
	CORS cors.Policy
	// Note receives the audit information of a request. May be nil.
	Note func(context.Context, Act)
	// PrivatePorts makes ports of new sandboxes private unless a request has allowPublicTraffic:
	// true.
	PrivatePorts bool
	// Domain is the domain in the host names of ports. If empty, clients must use headers.
	Domain string
	// Now is the wall clock. If nil, it is time.Now.
	Now func() time.Time
	// Log receives errors of this package. If nil, they are discarded.
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
	if o.Secrets == nil {
		o.Secrets = secrets.Off()
	}
	if o.Note == nil {
		o.Note = func(context.Context, Act) {}
	}
	return o
}
