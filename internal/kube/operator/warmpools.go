package operator

import (
	"context"
	"errors"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
)

// warmPools reconciles SandboxWarmPools with pools of prepared shells. Pools with the same snapshot share its shells.
type warmPools struct{ *core }

func (r *warmPools) register(m manager.Manager) error {
	o := r.options()
	o.MaxConcurrentReconciles = 1 // pools of one snapshot are changed one after another
	return ctrl.NewControllerManagedBy(m).Named("warmpools").
		For(&extensions.SandboxWarmPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&extensions.SandboxTemplate{}, handler.EnqueueRequestsFromMapFunc(r.ofTemplate)).
		WithOptions(o).Complete(r)
}

func (r *warmPools) ofTemplate(ctx context.Context, t kube.Object) []reconcile.Request {
	var list extensions.SandboxWarmPoolList
	if err := r.List(ctx, &list, kube.InNamespace(t.GetNamespace())); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Spec.TemplateRef.Name == t.GetName() {
			out = append(out, reconcile.Request{NamespacedName: kube.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// Reconcile implements reconcile.Reconciler.
func (r *warmPools) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var w extensions.SandboxWarmPool
	if err := r.Get(ctx, req.NamespacedName, &w); err != nil {
		return reconcile.Result{}, kube.IgnoreNotFound(err)
	}
	if !w.DeletionTimestamp.IsZero() {
		if hasFinalizer(&w) && w.Status.Snapshot != "" {
			if _, err := r.apply(ctx, w.Status.Snapshot, nil); err != nil {
				return reconcile.Result{}, err
			}
		}
		return reconcile.Result{}, r.release(ctx, &w)
	}
	if err := r.protect(ctx, &w); err != nil {
		return reconcile.Result{}, kube.IgnoreNotFound(err)
	}
	before := w.DeepCopy()
	w.Status.ObservedGeneration, w.Status.Replicas = w.Generation, w.Spec.Replicas
	// Any pool with this label could be counted by an autoscaler; there are no pods with it.
	w.Status.Selector = agents.Prefix + "warm-pool=" + w.Name
	res := reconcile.Result{RequeueAfter: r.cfg.Every}
	err := r.keep(ctx, &w)
	if err != nil {
		w.Status.ReadyReplicas = 0
		res, err = unsteady(err, &w.Status.Conditions, w.Generation)
	}
	return r.finish(ctx, before, &w, res, err)
}

// keep sets the numbers of shells of the pool's snapshot, and of its former one.
func (r *warmPools) keep(ctx context.Context, w *extensions.SandboxWarmPool) error {
	tag, err := r.tagOf(ctx, w)
	if err != nil {
		return err
	}
	old := w.Status.Snapshot
	w.Status.Snapshot = tag
	if old != "" && old != tag {
		if _, err := r.apply(ctx, old, nil); err != nil {
			return err
		}
	}
	ready, err := r.apply(ctx, tag, w)
	if err != nil {
		return err
	}
	w.Status.ReadyReplicas = min(w.Spec.Replicas, ready)
	if full := w.Status.ReadyReplicas == w.Spec.Replicas; full {
		set(&w.Status.Conditions, w.Generation, agents.Ready, true, agents.DependenciesReady, "")
	} else {
		set(&w.Status.Conditions, w.Generation, agents.Ready, false, agents.DependenciesNotReady, "shells are being prepared")
	}
	return nil
}

func (r *warmPools) tagOf(ctx context.Context, w *extensions.SandboxWarmPool) (string, error) {
	t, err := r.templateOf(ctx, w)
	if err != nil {
		return "", err
	}
	p, err := readTemplate(t)
	if err != nil {
		return "", invalid(err)
	}
	return r.snapshots.of(ctx, w.Namespace, p)
}

// apply sets the shells of a snapshot to the sum of its pools, spread over its nodes. It returns the ready ones that
// the
// pool self may count.
func (r *warmPools) apply(ctx context.Context, tag string, self *extensions.SandboxWarmPool) (int32, error) {
	var list extensions.SandboxWarmPoolList
	if err := r.List(ctx, &list); err != nil {
		return 0, err
	}
	total, before := 0, int32(0)
	for i := range list.Items {
		w := &list.Items[i]
		mine := self != nil && w.UID == self.UID
		if !w.DeletionTimestamp.IsZero() || !mine && w.Status.Snapshot != tag {
			continue
		}
		if self != nil && !mine && w.UID < self.UID {
			before += w.Spec.Replicas
		}
		total += int(w.Spec.Replicas)
	}
	ready, err := r.spread(ctx, tag, total)
	return max(0, int32(min(ready, 1<<30))-before), err // #nosec G115 -- bounded
}

// place is a node with a snapshot.
type place struct {
	client      *client.Client
	want, ready int
}

// spread sets the number of shells on each node with the snapshot.
func (r *warmPools) spread(ctx context.Context, tag string, total int) (ready int, err error) {
	places, err := r.places(ctx, tag)
	if err != nil {
		return 0, err
	}
	if len(places) == 0 {
		if total == 0 {
			return 0, nil
		}
		return 0, &problem{agents.DependenciesNotReady, "no node has the snapshot " + tag, 2 * time.Second}
	}
	var failed []error
	for i, p := range places {
		n := total / len(places)
		if i < total%len(places) {
			n++
		}
		if n = min(n, api.MaxPool); n != p.want {
			if err := p.client.SetPool(ctx, tag, n); err != nil {
				failed = append(failed, err)
				continue
			}
		}
		ready += min(p.ready, n)
	}
	if len(failed) > 0 {
		return ready, refusal(errors.Join(failed...))
	}
	return ready, nil
}

// places returns the nodes with a snapshot, in the order of their names.
func (r *warmPools) places(ctx context.Context, tag string) ([]place, error) {
	if r.cfg.Nodes == nil || r.cfg.Node == nil {
		pools, err := r.cfg.Forkd.Pools(ctx)
		if err != nil {
			return nil, refusal(err)
		}
		p := place{client: r.cfg.Forkd}
		if i := slices.IndexFunc(pools, func(p api.Pool) bool { return p.Tag == tag }); i >= 0 {
			p.want, p.ready = pools[i].Size, pools[i].Ready
		}
		return []place{p}, nil
	}
	var out []place
	for _, n := range r.cfg.Nodes.All() {
		facts, _ := n.Facts()
		if !n.Up() || !slices.ContainsFunc(facts.Snapshots, func(s api.NodeSnapshot) bool { return s.Tag == tag }) {
			continue
		}
		c, err := r.cfg.Node(n.Name)
		if err != nil {
			return nil, err
		}
		p := place{client: c}
		if i := slices.IndexFunc(facts.Pools, func(p api.NodePool) bool { return p.Tag == tag }); i >= 0 {
			p.want, p.ready = facts.Pools[i].Want, facts.Pools[i].Ready
		}
		n.Look()
		out = append(out, p)
	}
	return out, nil
}
