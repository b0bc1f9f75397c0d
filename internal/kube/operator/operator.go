package operator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
)

// LeaseName is the name of the Lease that elects the leader among operators.
const LeaseName = "forkd-operator"

// Finalizer delays the deletion of an object until its sandboxes have ended.
const Finalizer = "forkd.dev/sandboxes"

// Config are the settings of an operator.
type Config struct {
	// REST connects to the API server.
	REST *rest.Config
	// Forkd is a client of the gateway, or of the only node.
	Forkd *client.Client
	// Node returns a client for requests about one node. If it is nil, Forkd is one node.
	Node func(name string) (*client.Client, error)
	// Nodes are the nodes, for names, pools and ForkdNodes. It may be nil.
	Nodes *nodes.Set
	// Artifact gets snapshots from registries. If it is nil, no registry is allowed.
	Artifact OpenArtifact
	// Namespace has the Lease.
	Namespace string
	// Every is the interval of comparisons with the nodes. Default 10 s.
	Every time.Duration
	// Workers is the number of objects of a kind that are worked on at the same time. Default 16.
	Workers int
	// LeaseDuration is the time after which another operator takes over from one that has ended. Default 15 s.
	LeaseDuration time.Duration
	// Metrics and Health are addresses, or empty.
	Metrics, Health string
	// Log receives messages. If nil, they are discarded.
	Log *slog.Logger
}

// Scheme returns the scheme of the operator's objects.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{coordination.AddToScheme, corev1.AddToScheme, agents.AddTo,
		extensions.AddTo, forkdkinds.AddTo} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// core is the part that all reconcilers share.
type core struct {
	kube.Client
	live      kube.Reader // reads from the API server, not from the cache
	fleet     *fleet.Fleet
	snapshots *snapshots
	cfg       Config
	log       *slog.Logger
}

// Run reconciles until ctx ends, the lease is lost, or agent-sandbox's own controller appears.
func Run(ctx context.Context, c Config) error {
	c.Every, c.Workers = cmp.Or(c.Every, 10*time.Second), cmp.Or(c.Workers, 16)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 15*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	conf := rest.CopyConfig(c.REST)
	conf.QPS, conf.Burst = 200, 400
	direct, err := kube.New(conf, kube.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if err := upstream(ctx, direct, time.Now()); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	m, err := newManager(conf, scheme, c)
	if err != nil {
		return err
	}
	k := &core{Client: m.GetClient(), live: m.GetAPIReader(), fleet: fleet.New(c.Forkd), cfg: c, log: c.Log}
	k.snapshots = &snapshots{core: k, known: map[types.NamespacedName]resolved{}}
	if err := k.register(m); err != nil {
		return err
	}
	return m.Start(ctx)
}

func newManager(conf *rest.Config, scheme *runtime.Scheme, c Config) (manager.Manager, error) {
	renew, retry := c.LeaseDuration*2/3, c.LeaseDuration/8
	m, err := ctrl.NewManager(conf, ctrl.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(c.Log.Handler()),
		LeaderElection: true, LeaderElectionID: LeaseName, LeaderElectionNamespace: c.Namespace,
		LeaderElectionReleaseOnCancel: true, LeaseDuration: &c.LeaseDuration, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics:                server.Options{BindAddress: cmp.Or(c.Metrics, "0")},
		HealthProbeBindAddress: cmp.Or(c.Health, "0"),
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	if err := m.AddHealthzCheck("serving", healthz.Ping); err != nil {
		return nil, err
	}
	return m, m.AddReadyzCheck("serving", healthz.Ping)
}

// register adds the reconcilers and the comparisons with the nodes.
func (k *core) register(m manager.Manager) error {
	snapshots := newSnapshotObjects(k)
	w := &sweeper{core: k, claims: wakeups(), sandboxes: wakeups(), forks: wakeups()}
	for _, add := range []func(manager.Manager) error{
		(&claims{core: k, wake: w.claims}).register,
		(&sandboxes{core: k, wake: w.sandboxes}).register,
		(&warmPools{core: k}).register,
		(&forks{core: k, wake: w.forks}).register,
		snapshots.register,
	} {
		if err := add(m); err != nil {
			return err
		}
	}
	for _, run := range []manager.RunnableFunc{w.run, k.watchUpstream, (&nodeObjects{k}).run, snapshots.run} {
		if err := m.Add(run); err != nil {
			return err
		}
	}
	return nil
}

func wakeups() chan event.GenericEvent { return make(chan event.GenericEvent, 1024) }

// options limits the retries of one object, so that it does not wait for many minutes after a long outage.
func (k *core) options() controller.Options {
	off := true // tests run several operators in one process
	return controller.Options{MaxConcurrentReconciles: k.cfg.Workers, SkipNameValidation: &off,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond,
			30*time.Second)}
}

// unready delays objects until the sandboxes are known.
func (k *core) unready() (reconcile.Result, bool) {
	return reconcile.Result{RequeueAfter: 200 * time.Millisecond}, !k.fleet.Known()
}

// nodeOf returns the name of a sandbox's node, if the list of nodes has it.
func (k *core) nodeOf(id string) string {
	if k.cfg.Nodes == nil {
		return ""
	}
	if n := k.cfg.Nodes.ByKey(sandbox.NodeKeyIn(id)); n != nil {
		return n.Name
	}
	return ""
}
