package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agent/broken"
	"github.com/forkd/forkd/internal/guest/agent/clocksync"
	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/dialport"
	"github.com/forkd/forkd/internal/guest/agent/evalport"
	"github.com/forkd/forkd/internal/guest/agent/files"
	"github.com/forkd/forkd/internal/guest/agent/forkcall"
	"github.com/forkd/forkd/internal/guest/agent/freepages"
	"github.com/forkd/forkd/internal/guest/agent/fsfreeze"
	"github.com/forkd/forkd/internal/guest/agent/generation"
	"github.com/forkd/forkd/internal/guest/agent/handover"
	"github.com/forkd/forkd/internal/guest/agent/identity"
	"github.com/forkd/forkd/internal/guest/agent/initns"
	"github.com/forkd/forkd/internal/guest/agent/interp"
	"github.com/forkd/forkd/internal/guest/agent/inventory"
	"github.com/forkd/forkd/internal/guest/agent/procgroup"
	"github.com/forkd/forkd/internal/guest/agent/procs"
	"github.com/forkd/forkd/internal/guest/agent/reap"
	"github.com/forkd/forkd/internal/guest/agent/services"
	"github.com/forkd/forkd/internal/guest/agent/tokencall"
	"github.com/forkd/forkd/internal/guest/agent/volumes"
	"github.com/forkd/forkd/internal/guest/agent/watch"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem/filesystemconnect"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
)

// groupsDir is the directory of the agent's control groups.
const groupsDir = "forkd"

// Config configures an Agent. The zero value of each field has a documented meaning.
type Config struct {
	Version string // the agent's version, for clients; if empty, "dev"
	// Orphans makes the agent reap every child, including orphans of the guest. Set it for PID 1
	// and for a program with only an agent in it, but not in tests.
	Orphans bool
	// ImageFile is the image's metadata. It may be empty or missing.
	ImageFile string
	// Root is the directory in which identities write files. If empty, /.
	Root string
	// System is the kernel in which identities take effect. If nil, the kernel of this guest.
	System identity.System
	// Link is the guest's network device, or nil if the guest has no device.
	Link identity.Link
	// Address is the guest's own address on its socket transport. It differs between a clone and
	// its source. If nil, the address of this guest.
	Address generation.Addresser
	// HooksDir is the directory of fork hooks. If empty, /etc/forkd/fork.d.
	HooksDir string
	// Renews returns the program that makes a running init use a new identity, or an empty text. If nil,
	// it is that of package initns.
	Renews func() string
	// CgroupMount is where control groups are mounted. If empty, /sys/fs/cgroup.
	CgroupMount string
	// DialHost connects to the host's port for fork calls of programs in the guest. If nil, over
	// vsock.
	DialHost func(ctx context.Context) (net.Conn, error)
	// DialNotice connects to the host's port for notices about services. If nil, over vsock.
	DialNotice func(ctx context.Context) (net.Conn, error)
	// DialToken connects to the host's port for identity tokens. If nil, over vsock.
	DialToken func(ctx context.Context) (net.Conn, error)
	// ServicesFile keeps the declarations of services for a boot. If empty, they are in memory alone.
	ServicesFile string
	// Token, if set, is required in every request except GET /health.
	Token string
	// IdentityPort reports that the caller runs ServeIdentity, so identities have their own port.
	IdentityPort bool
	// SystemFiles are files without which programs do not start. If nil, those of package broken.
	SystemFiles []string
	// Update runs a new program of the agent in place of this process. If nil, the agent takes none.
	Update *UpdateConfig
	// From is the state of an earlier program of this agent, or nil. New takes its files.
	From *handover.State
	// Withheld are capabilities that the agent does not report, for tests of older agents.
	Withheld []string
	// Layers are the layers of the root's overlay, if known. The caller owns them.
	Layers inventory.Layers
	// Log receives one line per noteworthy event. If nil, events are dropped.
	Log func(format string, args ...any)
}

// Agent is a running agent without its listener.
type Agent struct {
	cfg     Config
	started time.Time
	rec     *defaults.Record
	device  generation.Device // unused if the configuration has an address
	guest   *generation.Guest
	reaper  *reap.Reaper
	groups  *procgroup.Groups
	procs   *procs.Table
	interp  *interp.Set
	broken  broken.Files // explains an interpreter that does not start
	ident   *identity.Applier
	forks   *forkcall.Server
	evals   *evalport.Server
	// services are the supervised programs. notice has a value when they have changed.
	services *services.Supervisor
	notice   chan struct{}
	files    *files.Server
	watch    *watch.Server
	free     *freepages.Reporter
	freezer  *fsfreeze.Freezer
	had      atomic.Int64 // peak memory of an interpreter when reports were switched off
	handler  http.Handler
	clock    *clocksync.Keeper

	// cpuMu guards the counters of the last CPU measurement.
	cpuMu             sync.Mutex
	cpuBusy, cpuTotal float64

	// serving is read-locked by each request, and gate while a process's output is read and stored. An
	// update locks both.
	serving, gate sync.RWMutex

	// identMu serializes identities and quiescing.
	identMu sync.Mutex

	stopReaping context.CancelFunc
	reaping     sync.WaitGroup
}

// New starts an agent without a listener. Call Serve to serve requests and Close to end it.
func New(cfg Config) (*Agent, error) {
	cfg = withDefaults(cfg)
	image, err := defaults.Load(cfg.ImageFile)
	if err != nil {
		return nil, err
	}
	var from state
	if cfg.From != nil {
		if err := cfg.From.Decode(&from); err != nil {
			return nil, err
		}
	}
	a := &Agent{cfg: cfg, started: time.Now(), rec: defaults.New(image)}
	a.free = freepages.New(cfg.Root, cfg.Log)
	a.freezer = fsfreeze.New(cfg.Layers.OpenUpper, cfg.Log)
	a.reaper = reap.New(cfg.Orphans)
	a.reaper.Ended = a.free.Look
	if cfg.From != nil {
		a.groups = procgroup.Reopen(cfg.CgroupMount, groupsDir, from.Groups)
	} else {
		a.groups = procgroup.Open(cfg.CgroupMount, groupsDir)
	}
	a.procs = procs.NewTable(a.reaper, a.groups, a.rec, broken.Watch(cfg.SystemFiles...), &a.gate, cfg.Log)
	a.broken = broken.Watch(slices.Concat(cfg.SystemFiles, interp.Paths())...)
	a.interp = interp.NewSet(a.reaper, a.groups, a.rec, &a.gate, interp.Python())
	a.guest = generation.New(cmp.Or[generation.Addresser](cfg.Address, &a.device))
	a.clock = &clocksync.Keeper{Clocks: cfg.System, Log: cfg.Log}
	a.clock.Taken()
	a.ident = &identity.Applier{
		System: cfg.System, Link: cfg.Link, Root: cfg.Root, Hooks: cfg.HooksDir,
		Record: a.rec, Interp: a.interp, Run: hookRunner{a.reaper, a.groups, a.rec},
		Became: a.became, Mount: volumes.Mount, Renews: cfg.Renews,
	}
	a.forks = forkcall.New(forkcall.Config{Guest: a.guest, Dial: cfg.DialHost, Log: cfg.Log})
	a.evals = evalport.New(evalport.Config{
		Admit: fromHost, Mark: a.guest.Mark, Eval: a.eval, Answered: a.evaluated, Log: cfg.Log,
	})
	a.notice = make(chan struct{}, 1)
	if cfg.From != nil {
		if err := a.takeOver(from); err != nil {
			return nil, err
		}
	}
	a.services = services.New(services.Config{Start: a.startService, Changed: a.servicesChanged,
		File: cfg.ServicesFile, Log: cfg.Log, Gate: &a.gate, Adopt: a.adoptService, From: from.services(cfg.From)})
	a.files, a.watch = files.NewServer(a.rec), watch.NewServer(a.rec)
	a.handler = a.routes()
	ctx, cancel := context.WithCancel(context.Background())
	a.stopReaping = cancel
	a.reaping.Go(func() {
		if err := a.reaper.Run(ctx); err != nil {
			cfg.Log("reaper: %v", err)
		}
	})
	return a, nil
}

func withDefaults(cfg Config) Config {
	set := func(s *string, def string) {
		if *s == "" {
			*s = def
		}
	}
	set(&cfg.Version, "dev")
	set(&cfg.ImageFile, "/etc/forkd/image.json")
	set(&cfg.Root, "/")
	set(&cfg.HooksDir, "/etc/forkd/fork.d")
	set(&cfg.CgroupMount, "/sys/fs/cgroup")
	if cfg.Renews == nil {
		cfg.Renews = initns.Renews
	}
	if cfg.System == nil {
		cfg.System = &identity.Linux{}
	}
	if cfg.SystemFiles == nil {
		cfg.SystemFiles = broken.System()
	}
	if cfg.DialHost == nil {
		cfg.DialHost = forkcall.DialHost
	}
	if cfg.DialNotice == nil {
		cfg.DialNotice = forkcall.DialNotice
	}
	if cfg.DialToken == nil {
		cfg.DialToken = tokencall.Dial
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	return cfg
}

// routes returns a handler for all paths of the agent.
func (a *Agent) routes() http.Handler {
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(agentproto.MaxMessageBytes),
		// The link is a local socket, and each clone would have to write a compressor's state to
		// its memory.
		connect.WithCompression("gzip", nil, nil),
		connect.WithRecover(a.recovered),
	}
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(a.procs, opts...))
	mux.Handle(agentv1connect.NewAgentHandler(&service{a}, opts...))
	mux.Handle(agentv1connect.NewInventoryHandler(inventory.Service{Root: a.cfg.Root, Proc: "/proc",
		Layers: a.cfg.Layers}, opts...))
	mux.Handle(withTrees(filesystemconnect.NewFilesystemHandler(filesystemService{a.files, a.watch}, opts...)))
	a.plainRoutes(mux)
	return a.marked(a.guard(mux))
}

// marked notes the generation in which a request began, before the request is handled.
func (a *Agent) marked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := r.Header.Get(agentproto.HeaderHostTime); host != "" {
			a.clock.Check(host)
		}
		a.serving.RLock()
		defer a.serving.RUnlock()
		next.ServeHTTP(w, r.WithContext(a.guest.Mark(r.Context())))
	})
}

// became is called when the guest has taken an identity. The connections to callers of the source
// are gone, so it drops state for them.
func (a *Agent) became() {
	a.clock.Taken()
	a.guest.Advance()
	a.watch.Forget()
	if len(a.services.List().Services) > 0 {
		a.servicesChanged() // the clone's host does not know of them
	}
}

// filesystemService combines the two parts of filesystem.Filesystem.
type filesystemService struct {
	*files.Server
	watcher
}

// watcher names the watching part, because the embedded types need different names.
type watcher = *watch.Server

var _ filesystemconnect.FilesystemHandler = filesystemService{}

// recovered turns a panic into an error answer. The agent is PID 1 and must keep running.
func (a *Agent) recovered(_ context.Context, spec connect.Spec, _ http.Header, p any) error {
	a.cfg.Log("panic in %s: %v", spec.Procedure, p)
	return connect.NewError(connect.CodeInternal, fmt.Errorf("internal error in %s", spec.Procedure))
}

// Handler returns the agent's HTTP interface.
func (a *Agent) Handler() http.Handler { return a.handler }

// Serve answers requests on l until ctx ends. It closes l.
func (a *Agent) Serve(ctx context.Context, l net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := &http.Server{
		Handler:           a.handler,
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          nil,
	}
	stop := context.AfterFunc(ctx, func() {
		cancel() // ends streams
		_ = srv.Close()
	})
	defer stop()
	err := srv.Serve(steady{l, a.cfg.Log})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// ServeForks answers programs in the guest that call for a fork, until ctx ends. l comes from
// forkcall.Listen.
func (a *Agent) ServeForks(ctx context.Context, l net.Listener) error { return a.forks.Serve(ctx, l) }

// ServeTokens answers programs in the guest that ask for identity tokens, until ctx ends. It closes l.
func (a *Agent) ServeTokens(ctx context.Context, l net.Listener) error {
	return tokencall.New(tokencall.Config{Guest: a.guest, Dial: a.cfg.DialToken}).Serve(ctx, steady{l, a.cfg.Log})
}

// ServeDials connects the host with servers in the guest, on l, until ctx ends. It closes l. A
// guest with a configured token has no such port.
func (a *Agent) ServeDials(ctx context.Context, l net.Listener) error {
	s := dialport.New(dialport.Config{Admit: fromHost, Log: a.cfg.Log, Using: a.serving.RLocker()})
	if err := s.Serve(ctx, steady{l, a.cfg.Log}); err != nil {
		return fmt.Errorf("serve dials: %w", err)
	}
	return nil
}

// ServeEvals evaluates on l, without HTTP, until ctx ends. It closes l. A guest with a configured
// token has no such port.
func (a *Agent) ServeEvals(ctx context.Context, l net.Listener) error {
	if err := a.evals.Serve(ctx, steady{l, a.cfg.Log}); err != nil {
		return fmt.Errorf("serve evaluations: %w", err)
	}
	return nil
}

// Close kills all programs of the agent and waits for them. Call it after serving has ended.
func (a *Agent) Close() error {
	a.interp.Close()
	a.evals.Wait()
	a.services.Close()
	err := errors.Join(a.watch.Close(), a.procs.Close(), a.device.Close())
	a.stopReaping()
	a.reaping.Wait()
	return errors.Join(err, a.groups.Close())
}
