package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/daemonlog"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/images/artifacts"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/operator"
	"github.com/forkd/forkd/internal/kube/placement"
)

// operatorOptions are the flags of forkd-kube operator.
type operatorOptions struct {
	url, key, fingerprint string
	nodes                 string
	cluster               clusterOptions
	namespace             string
	metrics, health       string
	workers               int
	every, lease          time.Duration
	registries            []string
	pulls                 string
	logs                  daemonlog.Flags
}

func newOperatorCommand() *cobra.Command {
	var o operatorOptions
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Serve the objects of agent-sandbox and of forkd in Kubernetes",
		Long: "Serve the objects of agent-sandbox (Sandbox, SandboxTemplate, SandboxWarmPool, SandboxClaim) and of\n" +
			"forkd (SandboxSnapshot, SandboxFork, ForkdNode) in Kubernetes. The sandboxes are made through a\n" +
			"gateway, or on one node. Of several operators one works, elected by a Lease in --namespace.\n\n" +
			"The key needs the right to make sandboxes and snapshots. All namespaces share its quota.\n\n" +
			"The operator does not start beside the controller of agent-sandbox, and ends when that appears.",
		Example: "  forkd-kube operator --url https://gateway:8890 --key-file operator.key --nodes nodes.yaml",
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

func (o *operatorOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.url, "url", "", "make sandboxes at the `URL` of a gateway or a daemon")
	f.StringVar(&o.key, "key-file", "", "read the key for --url from `FILE`")
	f.StringVar(&o.fingerprint, "tls-fingerprint", "",
		"accept only the certificate with this SHA-256 `FINGERPRINT` at --url")
	f.StringVar(&o.nodes, "nodes", "",
		"read the gateway's list of nodes from `FILE`, for ForkdNodes and pools on all nodes (default: --url is one node)")
	o.cluster.addFlags(f)
	f.StringVar(&o.namespace, "namespace", "forkd-system", "keep the Lease in `NAMESPACE`")
	f.StringVar(&o.metrics, "metrics-listen", "", "serve /metrics of the reconcilers on `HOST:PORT` (default: no metrics)")
	f.StringVar(&o.health, "health-listen", "", "serve /healthz and /readyz on `HOST:PORT` (default: none)")
	f.IntVar(&o.workers, "workers", 16, "work on `N` objects of a kind at the same time")
	f.DurationVar(&o.every, "interval", 10*time.Second, "compare objects and sandboxes at this `INTERVAL`")
	f.DurationVar(&o.lease, "lease-duration", 15*time.Second,
		"let another operator take over after this `TIME` without a sign of life")
	f.StringArrayVar(&o.registries, "artifact-registry", nil,
		"allow snapshots from the registry or repositories `HOST[:PORT][/PREFIX]`, for all namespaces; may be repeated (default: none)")
	f.StringVar(&o.pulls, "pull-dir", os.TempDir(), "keep downloads from registries in `DIR` until a node has them")
	o.logs.Add(f)
}

func (o *operatorOptions) complete() error {
	var wrong []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	check(o.url == "", "--url is missing: it names the gateway or the daemon")
	check(o.key == "" && strings.HasPrefix(o.url, "http"), "--key-file is missing: it has the key for --url")
	check(o.namespace == "", "--namespace is empty")
	wrong = append(wrong, o.cluster.check(o.nodes)...)
	check(o.workers < 1 || o.workers > 256, "--workers is %d, want 1 to 256", o.workers)
	check(o.every < 100*time.Millisecond, "--interval is %s, want at least 100ms", o.every)
	check(o.lease < 2*time.Second, "--lease-duration is %s, want at least 2s", o.lease)
	if len(wrong) > 0 {
		return exit.UsageError{Err: errors.Join(wrong...)}
	}
	return nil
}

// run reconciles until ctx ends.
func (o *operatorOptions) run(ctx context.Context) error {
	log, err := o.logs.Logger(os.Stderr)
	if err != nil {
		return err
	}
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler())) // messages of the library from outside of reconcilers
	conf, err := o.cluster.rest()
	if err != nil {
		return exit.UsageError{Err: err}
	}
	token, err := o.token()
	if err != nil {
		return exit.UsageError{Err: err}
	}
	forkd, err := o.client(token, "")
	if err != nil {
		return exit.UsageError{Err: err}
	}
	c := operator.Config{REST: conf, Forkd: forkd, Namespace: o.namespace, Every: o.every, Workers: o.workers,
		LeaseDuration: o.lease, Metrics: o.metrics, Health: o.health, Log: log}
	if len(o.registries) > 0 {
		p := artifacts.New(artifacts.Config{Allow: o.registries, Dir: o.pulls})
		c.Artifact = func(ctx context.Context, ref string, login []byte) (operator.Artifact, error) {
			return p.Open(ctx, ref, login)
		}
	}
	if o.nodes == "" && !o.cluster.given() {
		return operator.Run(ctx, c)
	}
	source, err := o.cluster.sourceOr(o.nodes, log)
	if err != nil {
		return err
	}
	c.Nodes = nodes.NewSet(nodes.Config{Board: placement.New(placement.Config{}), Log: log})
	c.Node = o.perNode(token)
	polls, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { c.Nodes.Run(polls, source) })
	defer running.Wait()
	defer stop()
	return operator.Run(ctx, c)
}

func (o *operatorOptions) token() (string, error) {
	if o.key == "" {
		return "", nil
	}
	return readKey("--key-file", o.key)
}

// client returns a client of --url, for requests about one node if node is not empty.
func (o *operatorOptions) client(token, node string) (*client.Client, error) {
	opt := client.Options{URL: o.url, Token: token, Fingerprint: o.fingerprint, UserAgent: "forkd-kube/" + version}
	if node != "" {
		opt.Header = http.Header{"Forkd-Node": {node}}
	}
	return client.New(opt)
}

// perNode returns clients for requests about one node, which the gateway passes on.
func (o *operatorOptions) perNode(token string) func(string) (*client.Client, error) {
	var made sync.Map
	return func(name string) (*client.Client, error) {
		if c, ok := made.Load(name); ok {
			return c.(*client.Client), nil
		}
		c, err := o.client(token, name)
		if err == nil {
			made.Store(name, c)
		}
		return c, err
	}
}
