package build

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/build/archive"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Engine is the domain as builds use it.
type Engine interface {
	Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error)
	Kill(ctx context.Context, id string) error
	Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error)
	CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
		progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	SnapshotInfo(ctx context.Context, tag string) (sandbox.SnapshotInfo, error)
	DeleteSnapshot(ctx context.Context, tag string, opt sandbox.DeleteOptions) error
	DialAgent(ctx context.Context, id string) (net.Conn, error)
}

// Config is what a Builder is made of. Zero values of the numbers mean the ones below.
type Config struct {
	Engine Engine
	Store  *Store
	// Base is the snapshot of that tag; of an image that has none yet it is made, and progress told.
	Base func(ctx context.Context, tag string, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)
	// Network is the policy of sandboxes that steps run in.
	Network *netpolicy.Spec
	Now     func() time.Time
	Log     *slog.Logger

	Parallel     int           // builds at a time
	Queue        int           // builds that wait or run
	QueueEach    int           // of them, of one tenant
	StepTimeout  time.Duration // of one command
	ReadyTimeout time.Duration // until the ready command has to succeed
	ReadyEvery   time.Duration // between its attempts
	StartWait    time.Duration // after a start command without a ready command
	LogBytes     int           // of all logs of one tenant's builds, in memory
	Archive      archive.Limits
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
		// As E2B has them.
		{&c.StepTimeout, time.Hour}, {&c.ReadyTimeout, 10 * time.Minute}, {&c.ReadyEvery, 2 * time.Second},
		{&c.StartWait, 20 * time.Second},
	} {
		if *d.at <= 0 {
			*d.at = d.def
		}
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
