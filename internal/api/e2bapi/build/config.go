package build

import (
	"context"
	"log/slog"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/build/archive"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Engine is the part of the domain that builds use.
type Engine interface {
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
	Kill(ctx context.Context, id string) error
	Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error)
	CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	SnapshotInfo(ctx context.Context, tag string) (sandbox.SnapshotInfo, error)
	DeleteSnapshot(ctx context.Context, tag string, opt sandbox.DeleteOptions) error
	sandbox.AgentDialer
}

// Config holds the settings of a Builder. Numbers that are zero have the defaults below.
type Config struct {
	// Engine runs the steps in sandboxes, as the principal of each call's context.
	Engine Engine
	Store  *Store // records templates, builds and layers
	// Base returns the snapshot with that tag. If an image has no snapshot yet, Base makes it and
	// reports progress.
	Base func(ctx context.Context, tag string, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	// Registry has the images of registries. If nil, builds cannot use them.
	Registry Registry
	// Account is the user of programs in templates from registries, and its home. The default is E2B's.
	Account Context
	// Prepare is the script that makes the account in a guest. Its arguments are the user's name and "true".
	Prepare string
	// Network is the policy of the sandboxes that run steps.
	Network *netpolicy.Spec
	Now     func() time.Time // wall clock; default time.Now
	Log     *slog.Logger     // errors of the builder itself; discarded if nil

	Parallel     int           // builds running at a time
	Queue        int           // builds waiting or running
	QueueEach    int           // of these, for one tenant
	StepTimeout  time.Duration // for one command
	ReadyTimeout time.Duration // until the ready command must succeed
	ReadyEvery   time.Duration // between its attempts
	StartWait    time.Duration // after a start command without a ready command
	LogBytes     int           // of all logs of one tenant's builds, in memory
	// Archive limits an uploaded archive; default 8 GiB and 250,000 entries.
	Archive archive.Limits
}

func (c Config) complete() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		at  *time.Duration
		def time.Duration
	}{
		// The same as E2B's.
		{&c.StepTimeout, time.Hour}, {&c.ReadyTimeout, 10 * time.Minute}, {&c.ReadyEvery, 2 * time.Second},
		{&c.StartWait, 20 * time.Second},
	} {
		if *d.at <= 0 {
			*d.at = d.def
		}
	}
	if c.Account.empty() {
		c.Account = Context{User: "user", Workdir: "/home/user"}
	}
	if c.Prepare == "" {
		c.Prepare = makeUser
	}
	if c.Parallel <= 0 {
		c.Parallel = 2
	}
	if c.Queue <= 0 {
		c.Queue = 64
	}
	if c.QueueEach <= 0 {
		c.QueueEach = max(1, c.Queue/4)
	}
	if c.LogBytes <= 0 {
		c.LogBytes = 40 << 20
	}
	if c.Archive.Bytes <= 0 {
		c.Archive.Bytes = 8 << 30
	}
	if c.Archive.Entries <= 0 {
		c.Archive.Entries = 250_000
	}
	return c
}
