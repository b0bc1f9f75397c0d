//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/daemonlog"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/api/cors"
	"github.com/forkd/forkd/internal/api/ingress"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/machine/hostcap"
	"github.com/forkd/forkd/internal/store/dataformat"
	"github.com/forkd/forkd/internal/sys/rundir"
)

// stopGrace limits requests in flight when the daemon stops, and then the end of the engine.
const stopGrace = 10 * time.Second

// monitorSlack is the timer slack of the Go runtime's monitor thread. With the kernel's default the
// thread wakes every 20 us plus that slack while the daemon works, and each wake-up may take a vCPU
// off its CPU.
const monitorSlack = 2 * time.Millisecond

// serveOptions are the daemon's flags.
type serveOptions struct {
	config              configOptions
	listen              []string
	sockets             []net.Listener // bound by a service manager
	socketGroup         string
	tokenFile           string
	keysFile            string // keys shared with other daemons
	audit               auditFlags
	retention           retentionDefaults
	tls                 tlsOptions
	data, run, vmm, kvm string
	agent               string // program of the guest's agent; empty if older agents stay
	guestFiles          []string
	pool, concurrency   int
	reserveMiB          int
	guestFork           sandbox.TreeLimits
	issuer              identityOptions
	diskReserveMiB      int
	identity            time.Duration
	scrub               time.Duration
	killOnStop          bool
	idleExit            time.Duration
	logs                daemonlog.Flags
	net                 netOptions
	jail                jailOptions
	admission           admissionOptions
	node                nodeOptions
	peers               peerOptions
	domain              string
	page                bool
	corsOrigins         []string
	cors                cors.Policy
	e2b                 bool
	e2bPrivatePorts     bool
	cgroup              string
	memory              memoryOptions
	seccomp             string
	signatures          signatureOptions
	traces              traceOptions
	secretsKey          string
	fetch               fetchOptions
}

func newServeCommand(a *app) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon in the foreground",
		Long: "Run the daemon in the foreground. Without --listen it serves its Unix socket only; this user and\n" +
			"root can use it. TCP clients must send a token: from --token-file, or a new one in RUN/token.\n\n" +
			"--config reads the flags from a file; --check checks them and exits. Sockets from a service manager\n" +
			"are served beside --listen, or instead of the default.\n\n" +
			"On SIGTERM the daemon stops accepting requests and gives open ones 10 s. Running sandboxes stay\n" +
			"for the next daemon, unless --kill-on-stop is given.",
		Example: "  forkd serve\n  forkd serve --listen unix:///run/forkd/forkd.sock --listen tcp://127.0.0.1:8889\n" +
			"  forkd serve --listen tcp://0.0.0.0:8889 --tls-self-signed --token-file /etc/forkd/token",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.config.load(cmd); err != nil {
				return err
			}
			if err := o.complete(); err != nil {
				return o.config.inFile(err)
			}
			if o.config.check {
				return checkOnly(a, cmd, o)
			}
			return a.serve(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	section(f, "Configuration", o.config.addFlags)
	section(f, "Addresses and access", o.addAPIFlags)
	section(f, "Files", o.addStorageFlags)
	section(f, "VMs", o.addVMFlags)
	section(f, "Network", o.net.addFlags)
	section(f, "Forks by guests", o.addTreeFlags)
	section(f, "Host resources", o.addHostFlags)
	section(f, "Cluster", o.addClusterFlags)
	section(f, "End of the daemon", o.addEndFlags)
	section(f, "Logs and traces", o.addLogFlags)
	return cmd
}

// complete fills in defaults and makes paths absolute.
func (o *serveOptions) complete() error {
	paths, err := endpoint.DefaultPaths()
	if err != nil {
		return err
	}
	for _, dir := range []struct {
		flag      *string
		otherwise string
	}{{&o.data, paths.Data}, {&o.run, paths.Run}} {
		if *dir.flag == "" {
			*dir.flag = dir.otherwise
		}
		if *dir.flag, err = filepath.Abs(*dir.flag); err != nil {
			return err
		}
	}
	if o.sockets, err = activated(); err != nil {
		return err
	}
	if len(o.listen) == 0 && len(o.sockets) == 0 {
		o.listen = []string{"unix://" + filepath.Join(o.run, "forkd.sock")}
	}
	if o.vmm == "" {
		if o.vmm, err = endpoint.Program("forkd-vmm"); err != nil {
			return err
		}
	}
	if o.agent, err = endpoint.Program("forkd-agent"); err != nil {
		o.agent = "" // older agents in snapshots then stay
	}
	if _, err := os.Stat(o.vmm); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--vmm %s: %w", o.vmm, err)}
	}
	if o.cors, err = cors.Parse(o.corsOrigins); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--cors-origin: %w", err)}
	}
	if !ingress.ValidDomain(o.domain) {
		return exit.UsageError{Err: fmt.Errorf("--domain %q: want a domain name, without a port", o.domain)}
	}
	if _, err := seccomp.ParseMode(o.seccomp); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--vmm-seccomp %w", err)}
	}
	if o.pool < 0 || o.concurrency < 0 {
		return exit.UsageError{Err: errors.New("--pool and --concurrency cannot be negative")}
	}
	if o.identity <= 0 {
		return exit.UsageError{Err: fmt.Errorf("--identity-timeout is %s, want more than 0", o.identity)}
	}
	if o.scrub < 0 {
		return exit.UsageError{Err: fmt.Errorf("--scrub-interval is %s, want 0 or more", o.scrub)}
	}
	if o.idleExit < 0 {
		return exit.UsageError{Err: fmt.Errorf("--idle-exit is %s, want 0 or more", o.idleExit)}
	}
	if o.reserveMiB < 1 {
		return exit.UsageError{Err: fmt.Errorf("--memory-reserve is %d, want at least 1", o.reserveMiB)}
	}
	for flag, v := range map[string]int{"tree": o.guestFork.Size, "depth": o.guestFork.Depth,
		"memory": o.guestFork.MemoryMiB} {
		if v < 1 {
			return exit.UsageError{Err: fmt.Errorf("--guest-fork-max-%s is %d, want at least 1", flag, v)}
		}
	}
	if err := errors.Join(o.retention.complete(),
		o.net.complete(), o.jail.complete(), o.admission.complete(), o.audit.complete(),
		o.tls.complete(), o.memory.complete(), o.signatures.complete(), o.node.complete(), o.peers.complete(),
		o.traces.complete(), o.issuer.complete()); err != nil {
		return err
	}
	if o.diskReserveMiB < 0 {
		return exit.UsageError{Err: fmt.Errorf("--disk-reserve is %d, want at least 0", o.diskReserveMiB)}
	}
	return nil
}

// serve builds the daemon and runs it until ctx ends.
func (a *app) serve(ctx context.Context, o serveOptions) (err error) {
	for _, name := range []string{"FORKD_TOKEN", "E2B_API_KEY"} {
		_ = os.Unsetenv(name) // it is a client's variable, and not for the daemon or its child processes
	}
	s := startup{o: o}
	defer func() {
		s.opened.Run()
		err = errors.Join(err, s.ended)
	}()
	if s.log, err = o.logs.Logger(a.Err); err != nil {
		return err
	}
	for _, step := range s.steps() {
		s.log.Debug("starting", "step", step.name)
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return s.run(ctx)
}

func (o serveOptions) version() api.VersionInfo {
	v := versionInfo()
	v.Domain = o.domain
	return v
}

// claimDirs checks whether the daemon may use the directories. The engine opens them.
func claimDirs(run, data string, log *slog.Logger) error {
	d, err := rundir.Open(run)
	if err == nil {
		err = d.Close()
	}
	if err = dirFlag("--run", err); err != nil {
		return err
	}
	if hostcap.InMemory(data) {
		log.Warn("the data directory is on a tmpfs: "+hostcap.InMemoryWarning, "path", data)
	}
	return dirFlag("--data", rundir.CheckData(data))
}

// dataFormat refuses the data directory of a newer program.
func dataFormat(dir string) error {
	err := dataformat.Check(dir)
	if errors.Is(err, dataformat.ErrNewer) {
		return exit.UsageError{Err: fmt.Errorf("--data: %w", err)}
	}
	return err
}

func dirFlag(flag string, err error) error {
	if errors.Is(err, rundir.ErrRefused) {
		return exit.UsageError{Err: fmt.Errorf("%s: %w", flag, err)}
	}
	return err
}

func (o serveOptions) openKVM() (*os.File, error) { return os.OpenFile(o.kvm, os.O_RDWR, 0) }

// probeKVM returns an error if the KVM device cannot be opened.
func (o serveOptions) probeKVM() error {
	f, err := o.openKVM()
	if err != nil {
		return err
	}
	return f.Close()
}

func (o serveOptions) engineConfig(images sandbox.Images, observer sandbox.Observer, log *slog.Logger) engine.Config {
	return engine.Config{
		StoreDir: o.data, RunDir: o.run, VMMBinary: o.vmm, AgentBinary: o.agent, Program: o.version().Version,
		OpenKVM:         o.openKVM,
		VMMSeccomp:      seccomp.Mode(o.seccomp),
		Images:          images,
		IdentityTimeout: o.identity,
		ScrubInterval:   o.scrub,
		GuestFork:       o.guestFork,
		PoolSize:        o.pool, Concurrency: o.concurrency, HostReserve: int64(o.reserveMiB) << 20,
		DiskReserve: int64(o.diskReserveMiB) << 20,
		KillOnClose: o.killOnStop, Observer: observer, Logger: log,
		Oracle: os.Getenv(sandbox.OracleVariable) == "1",
	}
}

// closeEngine closes the engine with a separate time limit, because ctx has ended when it is
// called.
func closeEngine(ctx context.Context, engine *engine.Engine) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	return engine.Close(ctx)
}
