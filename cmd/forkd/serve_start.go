//go:build linux

package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/api/auditing"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/api/metrics"
	"github.com/forkd/forkd/internal/api/peers"
	"github.com/forkd/forkd/internal/api/routes/snapshots"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/idtoken"
	"github.com/forkd/forkd/internal/domain/secrets"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/leaf/undo"
	"github.com/forkd/forkd/internal/sys/timerslack"
)

// startup is a daemon that starts: the flags, and the parts that its steps have opened so far.
type startup struct {
	o      serveOptions
	log    *slog.Logger
	opened undo.Stack // released at the end, newest first
	ended  error      // of the engine's end

	config    engine.Config
	server    apiServer     // code created before the server uses it for quotas, audit lines, authentication and views
	listed    publishedList // of the configuration; the authority has the file
	fresh     residue
	daemonKey string // the token of the API
	made      bool   // the token is a new one, which must be left in the run directory

	guestFiles *snapshots.GuestFiles
	audit      auditing.Log
	listeners  []listen.Listener
	others     *peers.Client
	images     *image.Store
	pulls      pulls
	timings    *metrics.Timings
	happened   *events.Log
	secrets    *secrets.Store
	verdicts   *verdicts
	spans      httpapi.Traces
	issuer     *idtoken.Issuer
	engine     *engine.Engine
	authority  authority
	outside    httpapi.Ingress
}

// startStep is a step of the daemon's start. Its name is in the log at level debug.
type startStep struct {
	name string
	do   func(context.Context) error
}

// steps returns the steps in their order. Those before "directories" write nothing, so a wrong flag leaves no files.
func (s *startup) steps() []startStep {
	return []startStep{
		{"timer slack", s.setTimerSlack},
		{"token", s.readToken},
		{"guest files", s.openGuestFiles},
		{"data format", s.checkDataFormat},
		{"audit log", s.openAudit},
		{"directories", s.claimDirs},
		{"addresses", s.bindAddresses},
		{"images", s.openImages},
		{"secrets", s.openSecretStore},
		{"host resources", s.configureHost},
		{"network", s.configureNetwork},
		{"VMs", s.configureVMs},
		{"traces", s.openTraces},
		{"identity", s.openIssuer},
		{"engine", s.openEngine},
		{"keys", s.openAuthority},
		{"guests' addresses", s.openOutside},
		{"API", s.makeServer},
	}
}

func (s *startup) setTimerSlack(context.Context) error {
	if err := timerslack.SetMonitor(monitorSlack); err != nil { // an ordinary user's daemon may not
		s.log.Debug("the monitor of the Go runtime looks every 20 us at a daemon that begins to work", "err", err)
	}
	return nil
}

func (s *startup) readToken(context.Context) (err error) {
	s.daemonKey, s.made, err = s.o.token()
	return err
}

func (s *startup) openGuestFiles(context.Context) (err error) {
	if s.guestFiles, err = snapshots.OpenGuestFiles(s.o.guestFiles); err != nil {
		return exit.UsageError{Err: err}
	}
	s.opened.Push(s.guestFiles.Close)
	return nil
}

func (s *startup) checkDataFormat(context.Context) error {
	if err := dataFormat(s.o.data); err != nil { // before anything is written
		return err
	}
	s.fresh = missing(s.o.run, s.o.data)
	s.opened.Push(func() {
		if s.engine == nil { // for example, a flag was wrong
			s.fresh.remove()
		}
	})
	return nil
}

func (s *startup) openAudit(ctx context.Context) (err error) {
	s.audit, err = s.o.audit.open(ctx, s.o.run, s.log, &s.opened)
	return err
}

func (s *startup) claimDirs(context.Context) error {
	return claimDirs(s.o.run, s.o.data, s.log) // before a socket is made in one of them
}

// bindAddresses comes before the engine: an address in use is the most likely mistake, and the cheapest to detect.
func (s *startup) bindAddresses(ctx context.Context) (err error) {
	s.listeners, err = s.o.bind(ctx, s.daemonKey, s.log, &s.opened)
	return err
}

func (s *startup) openImages(context.Context) (err error) {
	if s.others, err = s.o.peers.client(); err != nil {
		return err
	}
	if s.images, err = image.OpenStore(filepath.Join(s.o.data, "images")); err != nil {
		return err
	}
	s.timings = metrics.NewTimings()
	s.happened = openEvents(s.o.data, s.log)
	if s.pulls, err = s.o.openPulls(s.images); err != nil {
		return err
	}
	s.config = s.o.engineConfig(s.pulls.bootable(), s.timings, s.log)
	s.config.Events = s.timings.CountEvents(telling(s.happened))
	return nil
}

func (s *startup) openSecretStore(context.Context) (err error) {
	if s.secrets, err = s.o.openSecrets(s.log); err != nil {
		return err
	}
	s.config.Secrets = secrets.Source{Store: s.secrets}
	return nil
}

func (s *startup) configureHost(context.Context) (err error) {
	s.config.GuestQuota = s.server.admitGuest
	s.config.Acts = acting(s.audit, &s.server)
	s.o.signatures.configure(&s.config)
	if s.config.Groups, err = s.o.groups(s.log); err != nil {
		return err
	}
	if s.config.Groups != nil {
		s.opened.Push(s.config.Groups.Close)
	}
	s.o.memory.apply(s.config.Groups, s.log, &s.opened)
	return nil
}

func (s *startup) configureNetwork(ctx context.Context) error {
	s.o.net.configure(&s.config, s.log)
	s.verdicts = s.o.verdicts(ctx, &s.config, s.audit, s.timings.CountRefused, s.log)
	return nil
}

func (s *startup) configureVMs(ctx context.Context) error {
	s.o.admission.configure(&s.config)
	s.o.node.configure(&s.config)
	if err := s.o.fetch.configure(&s.config); err != nil {
		return err
	}
	return s.o.jail.configure(ctx, &s.config, s.log, &s.opened)
}

func (s *startup) openTraces(ctx context.Context) (err error) {
	s.spans, err = s.o.traces.open(ctx, s.o.version().Version, s.log, &s.opened)
	return err
}

func (s *startup) openIssuer(context.Context) (err error) {
	s.issuer, err = s.o.issuer.open(s.o.data, &s.config, s.log)
	return err
}

func (s *startup) openEngine(ctx context.Context) error {
	s.config.Published = s.listed.has
	opened, err := engine.Open(ctx, s.config)
	if err != nil {
		return err
	}
	s.engine = opened
	s.opened.Push(func() { s.ended = closeEngine(ctx, opened) })
	return nil
}

// openAuthority opens the stores of keys and tenants. The engine holds the directories now.
func (s *startup) openAuthority(ctx context.Context) (err error) {
	if s.authority, err = openKeys(ctx, s.o.data, s.o.keysFile, s.config.Groups, s.log, &s.opened); err != nil {
		return err
	}
	s.listed.Store(s.authority.published)
	for i := range s.listeners {
		s.listeners[i].Access.Keys = s.authority.keys
	}
	if !s.made {
		return nil
	}
	return leaveToken(s.o.run, s.daemonKey, s.listeners, s.log, &s.opened)
}

func (s *startup) openOutside(ctx context.Context) (err error) {
	access := auth.Access{Token: s.daemonKey, Keys: s.authority.keys}
	s.outside, err = s.o.outside(ctx, s.engine, &s.server, s.secrets, s.pulls, access, s.log, &s.opened)
	if err != nil {
		return err
	}
	s.verdicts.follow(ctx, s.engine, &s.opened)
	return nil
}

func (s *startup) makeServer(context.Context) error {
	s.server.Store(httpapi.New(httpapi.Options{
		GuestFiles: s.guestFiles, Engine: s.engine.Roles(), KVM: s.o.probeKVM,
		Images:  imageStore{s.images, imageRoom(s.o.data, int64(s.o.diskReserveMiB)<<20)},
		Version: s.o.version(), Log: s.log, Audit: s.audit, AuditFile: s.o.audit.file, Events: s.happened,
		Timings: s.timings, Ingress: s.outside, CORS: s.o.cors,
		Keys: s.authority.keys, Published: s.authority.published, Weights: s.authority.weights,
		Workspaces: s.authority.workspaces, Retention: s.o.retention.policy,
		Drain: s.engine.Drain, Traces: s.spans, Node: s.o.node.facts(s.config, s.log), Peers: s.others,
		SecretStore: s.secrets, Volumes: s.engine.TenantVolumes(), Networks: s.engine.TenantNetworks(),
		Secrets: secretsOf(s.outside), E2B: carried(s.outside), Page: s.o.page, Identity: s.issuer,
	}))
	return nil
}

// run serves until ctx ends, or until the daemon has been idle for its limit.
func (s *startup) run(ctx context.Context) error {
	go watchdog(ctx, func() { s.engine.List() }, s.log)
	idle := &idleWatch{after: s.o.idleExit, sandboxes: func() int { return len(s.engine.List()) }}
	idle.countRequests(s.listeners)
	ctx, stopWatch := idle.watch(ctx, s.log)
	defer stopWatch()
	notifySystemd(s.log, daemon.SdNotifyReady)
	err := s.server.Load().Run(ctx, s.listeners, stopGrace)
	notifySystemd(s.log, daemon.SdNotifyStopping)
	s.log.Info("stopping")
	return err
}
