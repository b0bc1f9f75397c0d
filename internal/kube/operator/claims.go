package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/kube/blueprint"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
)

// Kinds of owners.
const (
	kindClaim   = "SandboxClaim"
	kindSandbox = "Sandbox"
	kindFork    = "SandboxFork"
)

// labelClaim is agent-sandbox's label of a claim's sandbox.
const labelClaim = agents.Prefix + "claim-uid"

// claims reconciles SandboxClaims. A claim has no finalizer, which would be one more write: its Sandbox has one.
type claims struct {
	*core
	wake chan event.GenericEvent

	bound sync.Map // of types.NamespacedName to UID: claims with a written status, which the cache may lack
}

func (r *claims) register(m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).Named("claims").For(&extensions.SandboxClaim{}).Owns(&agents.Sandbox{}).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		WithOptions(r.options()).Complete(r)
}

func claimOwner(c *extensions.SandboxClaim) fleet.Owner {
	return fleet.Owner{Kind: kindClaim, Namespace: c.Namespace, Name: c.Name, UID: string(c.UID)}
}

// Reconcile implements reconcile.Reconciler.
func (r *claims) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if res, wait := r.unready(); wait {
		return res, nil
	}
	var c extensions.SandboxClaim
	err := r.Get(ctx, req.NamespacedName, &c)
	if uid, ok := r.bound.Load(req.NamespacedName); ok && err == nil && uid == c.UID && c.Status.Sandbox.Name == "" {
		err = r.live.Get(ctx, req.NamespacedName, &c)
	}
	if apierrors.IsNotFound(err) {
		r.bound.Delete(req.NamespacedName)
		return reconcile.Result{}, r.dropSandboxes(ctx, req.NamespacedName, "")
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if !c.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.dropSandboxes(ctx, req.NamespacedName, "")
	}
	before := c.DeepCopy()
	var res reconcile.Result
	switch {
	case isTrue(c.Status.Conditions, agents.Finished):
		return r.afterEnd(ctx, &c)
	case c.Spec.Lifecycle != nil && past(c.Spec.Lifecycle.ShutdownTime):
		res, err = r.expire(ctx, &c)
	case c.Status.Sandbox.Name != "":
		res, err = r.follow(ctx, &c)
	default:
		if res, err = r.bind(ctx, &c); err != nil {
			res, err = unsteady(err, &c.Status.Conditions, c.Generation)
		}
	}
	res, err = r.finish(ctx, before, &c, res, err)
	if err == nil && c.Status.Sandbox.Name != "" {
		r.bound.Store(req.NamespacedName, c.UID)
	}
	return res, err
}

// dropSandboxes deletes the Sandboxes of claims with a name, except those of a claim with the UID keep. The API
// server's garbage collector does the same, later.
func (r *claims) dropSandboxes(ctx context.Context, claim types.NamespacedName, keep types.UID) error {
	var list agents.SandboxList
	if err := r.List(ctx, &list, kube.InNamespace(claim.Namespace), kube.HasLabels{labelClaim}); err != nil {
		return err
	}
	for i := range list.Items {
		sb := &list.Items[i]
		ref := metav1.GetControllerOf(sb)
		if ref == nil || ref.Kind != kindClaim || ref.Name != claim.Name || ref.UID == keep ||
			!sb.DeletionTimestamp.IsZero() {
			continue
		}
		if err := kube.IgnoreNotFound(r.Delete(ctx, sb, kube.Preconditions{UID: &sb.UID})); err != nil {
			return err
		}
	}
	return nil
}

// bind finds or makes the claim's sandbox.
func (r *claims) bind(ctx context.Context, c *extensions.SandboxClaim) (reconcile.Result, error) {
	t, plan, err := r.plan(ctx, c)
	if err != nil {
		return reconcile.Result{}, err
	}
	owner := claimOwner(c)
	found, err := r.fleet.Find(ctx, owner)
	if err != nil {
		return reconcile.Result{}, refusal(err)
	}
	var id string
	if len(found) > 0 {
		id = found[0].ID // the comparison with the nodes ends others
	} else if id, err = r.fork(ctx, c, owner, plan); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.create(ctx, c, t, id); err != nil {
		return reconcile.Result{}, err
	}
	c.Status.Sandbox.Name = id
	set(&c.Status.Conditions, c.Generation, agents.Ready, true, agents.DependenciesReady, "")
	return until(shutdown(c)), nil
}

func shutdown(c *extensions.SandboxClaim) time.Time {
	if c.Spec.Lifecycle == nil {
		return time.Time{}
	}
	return timeOf(c.Spec.Lifecycle.ShutdownTime)
}

func (r *claims) fork(ctx context.Context, c *extensions.SandboxClaim, owner fleet.Owner, p blueprint.Plan) (string,
	error) {
	tag, err := r.snapshots.of(ctx, c.Namespace, p)
	if err != nil {
		return "", err
	}
	res, err := r.fleet.Fork(ctx, owner, api.CreateSandboxesRequest{SnapshotTag: tag, Env: p.Env, Labels: p.Labels,
		SandboxLife: api.SandboxLife{TTLSecs: fleet.Seconds(shutdown(c))}})
	if err != nil {
		r.snapshots.forget(c.Namespace, p.Snapshot)
		return "", refusal(err)
	}
	if len(res.Sandboxes) != 1 || res.Sandboxes[0].Error != "" {
		return "", &problem{agents.DependenciesNotReady, "the fork made no sandbox: " + failureOf(res.Sandboxes), 0}
	}
	return res.Sandboxes[0].ID, nil
}

func failureOf(list []api.SandboxInfo) string {
	for _, sb := range list {
		if sb.Error != "" {
			return sb.Error
		}
	}
	return "the answer has no sandbox"
}

// plan reads the claim's pool and template.
func (r *claims) plan(ctx context.Context, c *extensions.SandboxClaim) (*extensions.SandboxTemplate, blueprint.Plan,
	error) {
	var p blueprint.Plan
	if len(c.Spec.VolumeClaimTemplates) > 0 {
		return nil, p, &problem{extensions.VolumeClaimTemplates,
			"volumeClaimTemplates is not supported: sandboxes have no volumes", time.Hour}
	}
	t, err := r.template(ctx, c.Namespace, c.Spec.WarmPoolRef.Name)
	if err != nil {
		return nil, p, err
	}
	if p, err = readTemplate(t); err != nil {
		return nil, p, invalid(err)
	}
	if p.Env, err = envOf(c, t, p); err != nil {
		return nil, p, &problem{extensions.EnvVarsInjectionRejected, err.Error(), time.Minute}
	}
	if extra := c.Spec.AdditionalPodMetadata; extra != nil {
		labels := map[string]string{}
		maps.Copy(labels, p.Labels)
		maps.Copy(labels, extra.Labels)
		maps.DeleteFunc(labels, func(k, _ string) bool { return fleet.Reserved(k) })
		p.Labels = labels
	}
	return t, p, nil
}

// template returns the template of a pool.
func (k *core) template(ctx context.Context, namespace, pool string) (*extensions.SandboxTemplate, error) {
	var w extensions.SandboxWarmPool
	err := k.Get(ctx, types.NamespacedName{Namespace: namespace, Name: pool}, &w)
	if apierrors.IsNotFound(err) {
		return nil, &problem{extensions.WarmPoolNotFound, fmt.Sprintf("no SandboxWarmPool has the name %s", pool),
			2 * time.Second}
	}
	if err != nil {
		return nil, err
	}
	return k.templateOf(ctx, &w)
}

func (k *core) templateOf(ctx context.Context, w *extensions.SandboxWarmPool) (*extensions.SandboxTemplate, error) {
	name := w.Spec.TemplateRef.Name
	var t extensions.SandboxTemplate
	err := k.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: name}, &t)
	if apierrors.IsNotFound(err) {
		return nil, &problem{extensions.TemplateNotFound, fmt.Sprintf("no SandboxTemplate has the name %s", name),
			2 * time.Second}
	}
	return &t, err
}

func readTemplate(t *extensions.SandboxTemplate) (blueprint.Plan, error) {
	p, err := blueprint.Read(t.Spec.Blueprint, t.Annotations)
	return p, errors.Join(err, blueprint.NetworkPolicy(t.Spec.NetworkPolicy))
}

// envOf returns the environment of a claim's sandbox, as far as the template allows changes.
func envOf(c *extensions.SandboxClaim, t *extensions.SandboxTemplate, p blueprint.Plan) (map[string]string, error) {
	if len(c.Spec.Env) == 0 {
		return p.Env, nil
	}
	policy := t.Spec.EnvVarsInjectionPolicy
	if policy == "" || policy == extensions.EnvDisallowed {
		return nil, fmt.Errorf("env: the template %s does not allow it (envVarsInjectionPolicy)", t.Name)
	}
	env := map[string]string{}
	maps.Copy(env, p.Env)
	for i, v := range c.Spec.Env {
		if v.ContainerName != "" && v.ContainerName != p.Container {
			return nil, fmt.Errorf("env[%d]: the template has no container %q", i, v.ContainerName)
		}
		if err := blueprint.CheckEnvName(v.Name); err != nil {
			return nil, fmt.Errorf("env[%d]: %w", i, err)
		}
		if _, has := p.Env[v.Name]; has && policy != extensions.EnvOverrides {
			return nil, fmt.Errorf("env[%d]: the template has %s, and does not allow another value (envVarsInjectionPolicy)",
				i, v.Name)
		}
		env[v.Name] = v.Value
	}
	return env, nil
}

// create makes the Sandbox of a claim. Its name is the sandbox's id.
func (r *claims) create(ctx context.Context, c *extensions.SandboxClaim, t *extensions.SandboxTemplate,
	id string) error {
	sb := &agents.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Name: id, Namespace: c.Namespace, Finalizers: []string{Finalizer},
		Labels: map[string]string{labelClaim: string(c.UID), agents.Prefix + "launch-type": "warm"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c,
			extensions.GroupVersion.WithKind(kindClaim))},
	}, Spec: agents.SandboxSpec{Blueprint: *t.Spec.Blueprint.DeepCopy(), ShutdownPolicy: agents.Retain,
		OperatingMode: agents.Running}}
	if l := c.Spec.Lifecycle; l != nil {
		sb.Spec.ShutdownTime = l.ShutdownTime
	}
	err := r.Create(ctx, sb)
	if err == nil {
		return r.name(ctx, sb)
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var there agents.Sandbox
	if err := r.live.Get(ctx, kube.ObjectKeyFromObject(sb), &there); err != nil {
		return err
	}
	if !metav1.IsControlledBy(&there, c) || !there.DeletionTimestamp.IsZero() {
		return &problem{agents.ReconcilerError, fmt.Sprintf("another Sandbox has the name %s", id), time.Minute}
	}
	return r.name(ctx, &there)
}

// name gives the sandbox its Sandbox's UID. That is no write to etcd. A sandbox that has ended is the Sandbox's matter.
func (r *claims) name(ctx context.Context, sb *agents.Sandbox) error {
	err := r.fleet.Name(ctx, sb.Name, string(sb.UID))
	if err != nil && !client.IsNotFound(err) {
		return refusal(err)
	}
	return nil
}

// follow keeps the claim's status equal to its Sandbox's.
func (r *claims) follow(ctx context.Context, c *extensions.SandboxClaim) (reconcile.Result, error) {
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Status.Sandbox.Name}
	var sb agents.Sandbox
	err := r.Get(ctx, key, &sb)
	if apierrors.IsNotFound(err) { // the cache may be older than the Sandbox
		err = r.live.Get(ctx, key, &sb)
	}
	switch {
	case apierrors.IsNotFound(err), err == nil && !sb.DeletionTimestamp.IsZero():
		r.end(c, extensions.SandboxMissing, "the Sandbox was deleted")
		return r.afterEnd(ctx, c)
	case err != nil:
		return reconcile.Result{}, err
	case !metav1.IsControlledBy(&sb, c):
		r.end(c, extensions.SandboxMissing, "the Sandbox belongs to another object")
		return r.afterEnd(ctx, c)
	}
	if l := c.Spec.Lifecycle; l != nil && !l.ShutdownTime.Equal(sb.Spec.ShutdownTime) {
		before := sb.DeepCopy()
		sb.Spec.ShutdownTime = l.ShutdownTime
		if err := r.Patch(ctx, &sb, kube.MergeFrom(before)); err != nil {
			return reconcile.Result{}, err
		}
	}
	ready := meta.FindStatusCondition(sb.Status.Conditions, agents.Ready)
	if ready == nil {
		return until(shutdown(c)), nil
	}
	if isTrue(sb.Status.Conditions, agents.Finished) {
		r.end(c, ready.Reason, ready.Message)
		return r.afterEnd(ctx, c)
	}
	set(&c.Status.Conditions, c.Generation, agents.Ready, ready.Status == metav1.ConditionTrue, ready.Reason,
		ready.Message)
	return until(shutdown(c)), nil
}

func (r *claims) end(c *extensions.SandboxClaim, reason, text string) {
	set(&c.Status.Conditions, c.Generation, agents.Ready, false, reason, text)
	set(&c.Status.Conditions, c.Generation, agents.Finished, true, reason, text)
}

// expire ends a claim at its shutdownTime.
func (r *claims) expire(ctx context.Context, c *extensions.SandboxClaim) (reconcile.Result, error) {
	policy := c.Spec.Lifecycle.ShutdownPolicy
	if policy == agents.Delete || policy == extensions.DeleteForeground {
		return reconcile.Result{}, r.drop(ctx, c)
	}
	if err := r.dropSandboxes(ctx, kube.ObjectKeyFromObject(c), ""); err != nil {
		return reconcile.Result{}, err
	}
	r.end(c, extensions.ClaimExpired, "shutdownTime is over")
	return r.afterEnd(ctx, c)
}

func (r *claims) drop(ctx context.Context, c *extensions.SandboxClaim) error {
	how := metav1.DeletePropagationBackground
	if l := c.Spec.Lifecycle; l != nil && l.ShutdownPolicy == extensions.DeleteForeground {
		how = metav1.DeletePropagationForeground
	}
	return kube.IgnoreNotFound(r.Delete(ctx, c, kube.PropagationPolicy(how), kube.Preconditions{UID: &c.UID}))
}

// afterEnd deletes an ended claim after its time.
func (r *claims) afterEnd(ctx context.Context, c *extensions.SandboxClaim) (reconcile.Result, error) {
	l := c.Spec.Lifecycle
	if l == nil || l.TTLSecondsAfterFinished == nil {
		return reconcile.Result{}, nil
	}
	i := slices.IndexFunc(c.Status.Conditions, func(s metav1.Condition) bool { return s.Type == agents.Finished })
	at := c.Status.Conditions[i].LastTransitionTime.Add(time.Duration(*l.TTLSecondsAfterFinished) * time.Second)
	if time.Now().Before(at) {
		return until(at), nil
	}
	return reconcile.Result{}, r.drop(ctx, c)
}
