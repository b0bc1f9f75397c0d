package operator

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/blueprint"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
)

// sandboxes reconciles Sandboxes: those of claims, and those of users.
type sandboxes struct {
	*core
	wake chan event.GenericEvent

	made sync.Map // of UID to id: sandboxes with a status of this process, which the cache may lack
}

func (r *sandboxes) register(m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).Named("sandboxes").For(&agents.Sandbox{}).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		WithOptions(r.options()).Complete(r)
}

// claimOf returns the claim of a Sandbox, or nil.
func claimOf(sb *agents.Sandbox) *metav1.OwnerReference {
	ref := metav1.GetControllerOf(sb)
	if ref == nil || ref.Kind != kindClaim || ref.APIVersion != extensions.GroupVersion.String() {
		return nil
	}
	return ref
}

// ownerOf returns the owner in the labels of a Sandbox's VM, and the VM's id, which is empty before it was made. Users
// can write both; the labels of the VM decide.
func ownerOf(sb *agents.Sandbox) (owner fleet.Owner, id string) {
	if ref := claimOf(sb); ref != nil {
		return fleet.Owner{Kind: kindClaim, Namespace: sb.Namespace, Name: ref.Name, UID: string(ref.UID)}, sb.Name
	}
	return fleet.Owner{Kind: kindSandbox, Namespace: sb.Namespace, Name: sb.Name, UID: string(sb.UID)}, sb.Status.SandboxID
}

// Reconcile implements reconcile.Reconciler.
func (r *sandboxes) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if res, wait := r.unready(); wait {
		return res, nil
	}
	var sb agents.Sandbox
	err := r.Get(ctx, req.NamespacedName, &sb)
	if _, made := r.made.Load(sb.UID); err == nil && made && sb.Status.SandboxID == "" {
		err = r.live.Get(ctx, req.NamespacedName, &sb)
	}
	if err != nil {
		return reconcile.Result{}, kube.IgnoreNotFound(err)
	}
	if !sb.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.end(ctx, &sb)
	}
	if isTrue(sb.Status.Conditions, agents.Finished) {
		return reconcile.Result{}, nil
	}
	if err := r.protect(ctx, &sb); err != nil {
		return reconcile.Result{}, kube.IgnoreNotFound(err)
	}
	before := sb.DeepCopy()
	res, err := r.steer(ctx, &sb)
	if err != nil {
		res, err = unsteady(err, &sb.Status.Conditions, sb.Generation)
	}
	res, err = r.finish(ctx, before, &sb, res, err)
	if err == nil && sb.Status.SandboxID != "" {
		r.made.Store(sb.UID, sb.Status.SandboxID)
	}
	return res, err
}

// end ends the VM, and lets the object go.
func (r *sandboxes) end(ctx context.Context, sb *agents.Sandbox) error {
	if !hasFinalizer(sb) {
		return nil
	}
	if err := r.endVM(ctx, sb); err != nil {
		return fmt.Errorf("end the sandbox of %s/%s: %w", sb.Namespace, sb.Name, err)
	}
	r.made.Delete(sb.UID)
	return r.release(ctx, sb)
}

func (r *sandboxes) endVM(ctx context.Context, sb *agents.Sandbox) error {
	owner, id := ownerOf(sb)
	if claimOf(sb) == nil {
		return r.fleet.EndAll(ctx, owner)
	}
	// A claim has one Sandbox. Another one with the same owner must not end its VM.
	vm, state, err := r.core.vm(ctx, owner, id)
	if err != nil || state != found {
		return err
	}
	return r.fleet.End(ctx, vm.ID)
}

// state is the knowledge about a VM.
type state int

const (
	never state = iota // it was not made
	found
	gone
)

// vm finds the VM of an owner. id is empty if it was not made, as far as the object knows.
func (k *core) vm(ctx context.Context, owner fleet.Owner, id string) (api.SandboxInfo, state, error) {
	list, err := k.fleet.Of(owner), error(nil)
	if len(list) == 0 && id == "" {
		if list, err = k.fleet.Find(ctx, owner); err != nil {
			return api.SandboxInfo{}, never, refusal(err)
		}
	}
	for _, vm := range list {
		if id == "" || vm.ID == id {
			return vm, found, nil
		}
	}
	if id == "" {
		return api.SandboxInfo{}, never, nil
	}
	if ended, err := k.fleet.Gone(ctx, id); err != nil {
		return api.SandboxInfo{}, gone, &problem{agents.DependenciesNotReady, err.Error(), 0}
	} else if !ended {
		for _, vm := range k.fleet.Of(owner) {
			if vm.ID == id {
				return vm, found, nil
			}
		}
	}
	return api.SandboxInfo{}, gone, nil
}

// steer moves the VM to the wanted state, and describes it in the status.
func (r *sandboxes) steer(ctx context.Context, sb *agents.Sandbox) (reconcile.Result, error) {
	if past(sb.Spec.ShutdownTime) {
		return reconcile.Result{}, r.expire(ctx, sb)
	}
	owner, id := ownerOf(sb)
	if v, ok := r.made.Load(sb.UID); ok && id == "" {
		id, _ = v.(string)
	}
	vm, state, err := r.core.vm(ctx, owner, id)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case state == gone:
		finished(sb, agents.PodFailed, "the sandbox "+id+" has ended")
		return reconcile.Result{}, nil
	case state == never:
		if vm, err = r.make(ctx, sb, owner); err != nil {
			return reconcile.Result{}, err
		}
		r.made.Store(sb.UID, vm.ID)
	}
	sb.Status.SandboxID, sb.Status.NodeName = vm.ID, cmp.Or(vm.Node, r.nodeOf(vm.ID))
	if vm.Status == api.SandboxFailed {
		finished(sb, agents.PodFailed, vm.Reason)
		return reconcile.Result{}, nil
	}
	return r.mode(ctx, sb, vm)
}

// mode pauses or resumes the VM.
func (r *sandboxes) mode(ctx context.Context, sb *agents.Sandbox, vm api.SandboxInfo) (reconcile.Result, error) {
	var err error
	wantPaused := sb.Spec.OperatingMode == agents.Suspended
	switch {
	case vm.Status == api.SandboxPausing || vm.Status == api.SandboxResuming:
		if _, err := r.fleet.Gone(ctx, vm.ID); err != nil { // reads its state again
			return reconcile.Result{}, refusal(err)
		}
		return reconcile.Result{RequeueAfter: time.Second / 2}, nil
	case wantPaused && vm.Status != api.SandboxPaused:
		vm, err = r.fleet.Pause(ctx, vm.ID)
	case !wantPaused && vm.Status == api.SandboxPaused:
		vm, err = r.fleet.Resume(ctx, vm.ID)
	}
	if err == nil && !sameEnd(vm, timeOf(sb.Spec.ShutdownTime)) {
		_, err = r.fleet.Until(ctx, vm.ID, timeOf(sb.Spec.ShutdownTime))
	}
	if err != nil {
		return reconcile.Result{}, refusal(err)
	}
	if wantPaused {
		set(&sb.Status.Conditions, sb.Generation, agents.Ready, false, agents.SandboxSuspended,
			"memory and processes are kept")
		set(&sb.Status.Conditions, sb.Generation, agents.IsSuspended, true, agents.PodTerminated, "")
	} else {
		set(&sb.Status.Conditions, sb.Generation, agents.Ready, true, agents.DependenciesReady, "")
		set(&sb.Status.Conditions, sb.Generation, agents.IsSuspended, false, agents.NotSuspended, "")
	}
	return until(timeOf(sb.Spec.ShutdownTime)), nil
}

// sameEnd compares the end of a VM's life with the wanted one. Both are whole seconds, of different clocks.
func sameEnd(vm api.SandboxInfo, want time.Time) bool {
	if vm.Life == nil || vm.Life.DeadlineUnix == nil {
		return want.IsZero()
	}
	if want.IsZero() {
		return false
	}
	d := time.Unix(*vm.Life.DeadlineUnix, 0).Sub(want)
	return d.Abs() <= 5*time.Second
}

// make forks the VM of a user's Sandbox.
func (r *sandboxes) make(ctx context.Context, sb *agents.Sandbox, owner fleet.Owner) (api.SandboxInfo, error) {
	if claimOf(sb) != nil { // ownerOf always has an id for them
		return api.SandboxInfo{}, &problem{agents.ReconcilerError, "the claim makes the sandbox", time.Minute}
	}
	p, err := blueprint.Read(sb.Spec.Blueprint, sb.Annotations)
	if err != nil {
		return api.SandboxInfo{}, invalid(err)
	}
	tag, err := r.snapshots.of(ctx, sb.Namespace, p)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	// The cache may lack the status of an earlier operator.
	var live agents.Sandbox
	if err := r.live.Get(ctx, kube.ObjectKeyFromObject(sb), &live); err != nil || live.UID != sb.UID ||
		live.Status.SandboxID != "" {
		if err == nil || apierrors.IsNotFound(err) {
			err = &problem{agents.ReconcilerError, "the Sandbox has changed", time.Second}
		}
		return api.SandboxInfo{}, err
	}
	res, err := r.fleet.Fork(ctx, owner, api.CreateSandboxesRequest{SnapshotTag: tag, Env: p.Env, Labels: p.Labels,
		SandboxLife: api.SandboxLife{TTLSecs: fleet.Seconds(timeOf(sb.Spec.ShutdownTime))}})
	if err != nil {
		r.snapshots.forget(sb.Namespace, p.Snapshot)
		return api.SandboxInfo{}, refusal(err)
	}
	if ok := res.OK(); len(ok) == 1 {
		return ok[0], nil
	}
	return api.SandboxInfo{}, &problem{agents.DependenciesNotReady,
		"the fork made no sandbox: " + failureOf(res.Sandboxes), 0}
}

// expire ends the VM at shutdownTime.
func (r *sandboxes) expire(ctx context.Context, sb *agents.Sandbox) error {
	if err := r.endVM(ctx, sb); err != nil {
		return err
	}
	finished(sb, agents.SandboxExpired, "shutdownTime is over")
	if sb.Spec.ShutdownPolicy == agents.Delete {
		return kube.IgnoreNotFound(r.Delete(ctx, sb.DeepCopy(), kube.Preconditions{UID: &sb.UID}))
	}
	return nil
}

func finished(sb *agents.Sandbox, reason, text string) {
	set(&sb.Status.Conditions, sb.Generation, agents.Ready, false, reason, text)
	set(&sb.Status.Conditions, sb.Generation, agents.Finished, true, reason, text)
}
