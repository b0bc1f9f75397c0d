package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/daemonlog"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/api/e2bapi/templates"
	"github.com/forkd/forkd/internal/api/tlscert"
	"github.com/forkd/forkd/internal/kube/gateway"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/placement"
)

// gatewayOptions are the flags of forkd-kube gateway.
type gatewayOptions struct {
	listen, metrics     string
	nodes               string
	cluster             clusterOptions
	domain              string
	cert, key           string
	plain               bool
	requests            int
	diskFloor           float64
	every, delay, grace time.Duration
	logs                daemonlog.Flags
	resumeKey           string
	router              routerOptions
}

func newGatewayCommand() *cobra.Command {
	var o gatewayOptions
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Serve the API of many nodes at one address",
		Long: "Serve the API of many nodes at one address. Clients send the keys of the nodes: the gateway passes\n" +
			"them on, and each node checks them. The nodes are the pods of a headless service (--nodes-service),\n" +
			"or in a list (--nodes), which is YAML and read again when it changes:\n\n" +
			"  - name: node-a\n    uid: 9f3c1c0e-6d0a-4a52-9d38-0a8f6b1c2d3e\n    url: https://10.0.0.1:8889\n" +
			"    token-file: /etc/forkd/gateway.key\n    ca-file: /etc/forkd/ca.pem\n\n" +
			"name and uid are those of `forkd serve --node-name --node-uid`. The token reads GET /v1/node only:\n" +
			"make it with `forkd key create gateway --scope read` on each node.\n\n" +
			"On SIGTERM the gateway becomes unready, waits for --drain-delay, refuses new connections, and gives\n" +
			"open requests the time of --grace.",
		Example: "  forkd-kube gateway --listen 127.0.0.1:8890 --nodes nodes.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *gatewayOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.listen, "listen", "127.0.0.1:8890", "serve clients on the TCP address `HOST:PORT`")
	f.StringVar(&o.metrics, "metrics-listen", "",
		"serve /metrics, /healthz and /readyz on `HOST:PORT`, without a key (default: no metrics)")
	f.StringVar(&o.nodes, "nodes", "", "read the list of nodes from `FILE`")
	o.cluster.addFlags(f)
	f.StringVar(&o.domain, "domain", "forkd.localhost",
		"use the `DOMAIN` of sandboxes' host names, as `forkd serve --domain`")
	f.StringVar(&o.cert, "tls-cert", "", "present the certificate chain in `FILE`; it is reloaded when changed")
	f.StringVar(&o.key, "tls-key", "", "read the certificate's key from `FILE`")
	f.BoolVar(&o.plain, "plain-http", false,
		"allow --listen beyond loopback without TLS; keys and data can be read on the network")
	f.IntVar(&o.requests, "max-requests", 4096, "serve at most `N` requests at the same time, streams included")
	f.Float64Var(&o.diskFloor, "disk-floor", 15,
		"send no new sandboxes to nodes with less than `PERCENT` of their store's file system free")
	f.DurationVar(&o.every, "poll-interval", 2*time.Second, "ask each node for its facts at this mean `INTERVAL`")
	f.DurationVar(&o.delay, "drain-delay", 0, "serve for this `TIME` after SIGTERM, until load balancers have noticed")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "give open requests this `TIME` at the end")
	f.StringVar(&o.resumeKey, "resume-key-file", "",
		"resume paused sandboxes at other nodes for requests to ports, with the key in `FILE` (default: they stay)")
	o.router.addFlags(f)
	o.logs.Add(f)
}

func (o *gatewayOptions) complete() error {
	var wrong []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	check(o.nodes == "" && !o.cluster.given(), "--nodes or --nodes-service is missing: they name the nodes")
	wrong = append(wrong, o.cluster.check(o.nodes)...)
	check((o.cert == "") != (o.key == ""), "--tls-cert and --tls-key go together")
	check(o.plain && o.cert != "", "--plain-http and a certificate exclude each other")
	check(o.requests < 1, "--max-requests is %d, want at least 1", o.requests)
	check(!(o.diskFloor >= 0 && o.diskFloor <= 100), "--disk-floor is %g, want 0 to 100", o.diskFloor)
	check(o.every < 100*time.Millisecond, "--poll-interval is %s, want at least 100ms", o.every)
	check(o.delay < 0 || o.grace < 0, "--drain-delay and --grace cannot be negative")
	wrong = append(wrong, o.router.complete())
	host, _, err := net.SplitHostPort(o.listen)
	check(err != nil, "--listen %q: want HOST:PORT", o.listen)
	check(err == nil && o.cert == "" && !o.plain && !loopback(host),
		"--listen %s is beyond loopback: give --tls-cert and --tls-key, or --plain-http behind a proxy with TLS", o.listen)
	if err := errors.Join(wrong...); err != nil {
		return exit.UsageError{Err: err}
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// run serves until ctx ends.
func (o *gatewayOptions) run(ctx context.Context) error {
	log, err := o.logs.Logger(os.Stderr)
	if err != nil {
		return err
	}
	source, err := o.cluster.sourceOr(o.nodes, log)
	if err != nil {
		return err
	}
	resumeKey := ""
	if o.resumeKey != "" {
		if resumeKey, err = readKey("--resume-key-file", o.resumeKey); err != nil {
			return exit.UsageError{Err: err}
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	board := placement.New(placement.Config{DiskFloor: max(o.diskFloor/100, 1e-9)}) // 0 would be the default
	state := nodes.NewMetrics(registry)
	set := nodes.NewSet(nodes.Config{Board: board, Every: o.every, Polled: state.Polled, Removed: state.Removed, Log: log})
	g := gateway.New(gateway.Config{Nodes: set, Board: board, Domain: o.domain, MaxRequests: o.requests,
		ResumeKey: resumeKey, TemplateTag: templates.TagOr, Metrics: registry, Log: log})
	s := gateway.Server{Gateway: g, Nodes: set, Source: source, Registry: registry, Address: o.listen, Metrics: o.metrics,
		DrainDelay: o.delay, Grace: o.grace, Log: log}
	if o.router.key != "" {
		front, end, err := o.router.start(g, o.cluster, log)
		if err != nil {
			return exit.UsageError{Err: err}
		}
		defer end()
		s.Front = front
	}
	if o.cert != "" {
		files, err := tlscert.Open(o.cert, o.key, log)
		if err != nil {
			return exit.UsageError{Err: err}
		}
		conf, err := files.Config("")
		if err != nil {
			return exit.UsageError{Err: err}
		}
		s.Certificate = conf.GetCertificate
	}
	return s.Run(ctx)
}
