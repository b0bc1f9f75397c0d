package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/kube/blueprint"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
)

// forks reconciles SandboxForks. The writes are the creation, the finalizer and one status, for any number of children.
type forks struct {
	*core
	wake chan event.GenericEvent

	done sync.Map // of UID: forks with a written status, which the cache may lack
}

func (r *forks) register(m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).Named("forks").
		For(&forkdkinds.SandboxFork{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		WithOptions(r.options()).Complete(r)
}

func forkOwner(f *forkdkinds.SandboxFork) fleet.Owner {
	return fleet.Owner{Kind: kindFork, Namespace: f.Namespace, Name: f.Name, UID: string(f.UID)}
}

// Reconcile implements reconcile.Reconciler.
func (r *forks) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if res, wait := r.unready(); wait {
		return res, nil
	}
	var f forkdkinds.SandboxFork
	err := r.Get(ctx, req.NamespacedName, &f)
	if _, done := r.done.Load(f.UID); err == nil && done && !isTrue(f.Status.Conditions, forkdkinds.Complete) {
		err = r.live.Get(ctx, req.NamespacedName, &f)
	}
	if err != nil {
		return reconcile.Result{}, kube.IgnoreNotFound(err)
	}
	if !f.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.end(ctx, &f)
	}
	if err := r.protect(ctx, &f); err != nil {
		return reconcile.Result{}, kube.IgnoreNotFound(err)
	}
	before := f.DeepCopy()
	var res reconcile.Result
	if isTrue(f.Status.Conditions, forkdkinds.Complete) {
		err = r.follow(ctx, &f)
	} else if err = r.make(ctx, &f); err != nil {
		res, err = unsteady(err, &f.Status.Conditions, f.Generation)
	}
	res, err = r.finish(ctx, before, &f, res, err)
	if err == nil && isTrue(f.Status.Conditions, forkdkinds.Complete) {
		r.done.Store(f.UID, true)
	}
	return res, err
}

// scratch is the tag of the snapshot between a sandbox and its children.
func scratch(f *forkdkinds.SandboxFork) string { return "kube-fork-" + digest(string(f.UID)) }

func (r *forks) end(ctx context.Context, f *forkdkinds.SandboxFork) error {
	if !hasFinalizer(f) {
		return nil
	}
	if err := r.fleet.EndAll(ctx, forkOwner(f)); err != nil {
		return err
	}
	if f.Spec.Source.Sandbox != "" {
		err := r.fleet.Client().DeleteSnapshot(ctx, scratch(f), client.DeleteOptions{})
		if err != nil && !client.IsNotFound(err) {
			return err
		}
	}
	r.done.Delete(f.UID)
	return r.release(ctx, f)
}

// make forks the children. Those of an earlier attempt count.
func (r *forks) make(ctx context.Context, f *forkdkinds.SandboxFork) error {
	if past(f.Spec.ShutdownTime) {
		return &problem{agents.SandboxExpired, "shutdownTime was over before the fork", time.Hour}
	}
	for name := range f.Spec.Env {
		if err := blueprint.CheckEnvName(name); err != nil {
			return invalid(fmt.Errorf("env: %w", err))
		}
	}
	owner, count := forkOwner(f), int(f.Spec.Count)
	there, err := r.fleet.Ask(ctx, owner)
	if err != nil {
		return refusal(err)
	}
	all := there[:min(len(there), count)]
	if missing := count - len(all); missing > 0 {
		tag, err := r.source(ctx, f)
		if err != nil {
			return err
		}
		res, err := r.fleet.Fork(ctx, owner, api.CreateSandboxesRequest{SnapshotTag: tag, N: &missing, Env: f.Spec.Env,
			SandboxLife: api.SandboxLife{TTLSecs: fleet.Seconds(timeOf(f.Spec.ShutdownTime))}})
		if err != nil {
			r.snapshots.forget(f.Namespace, f.Spec.Source.Snapshot)
			return refusal(err)
		}
		f.Status.ReadyWallMicroseconds = res.ReadyWall.Microseconds()
		all = append(all, res.Sandboxes...)
	}
	f.Status.Children = nil
	for i, sb := range all {
		c := forkdkinds.ForkChild{Index: int32(i + 1), ID: sb.ID,
			Phase: forkdkinds.ChildRunning} // #nosec G115 -- at most 1000
		if c.Node = cmp.Or(sb.Node, r.nodeOf(sb.ID)); sb.Error != "" || sb.ID == "" {
			c = forkdkinds.ForkChild{Index: c.Index, Phase: forkdkinds.ChildFailed, Code: string(sb.Code),
				Message: short(sb.Error)}
		}
		f.Status.Children = append(f.Status.Children, c)
	}
	r.count(f)
	set(&f.Status.Conditions, f.Generation, forkdkinds.Complete, true, "ChildrenMade", "")
	return nil
}

// short limits a text per child, so that the object stays within etcd's limit.
func short(s string) string {
	if len(s) > 256 {
		return s[:256]
	}
	return s
}

// count sets the numbers and Ready by the phases.
func (r *forks) count(f *forkdkinds.SandboxFork) {
	ready := int32(0)
	for _, c := range f.Status.Children {
		if c.Phase == forkdkinds.ChildRunning {
			ready++
		}
	}
	f.Status.Ready, f.Status.Failed = ready, f.Spec.Count-ready
	want := f.Spec.Count
	if f.Spec.MinReady > 0 {
		want = min(want, f.Spec.MinReady)
	}
	if ready >= want {
		set(&f.Status.Conditions, f.Generation, agents.Ready, true, agents.DependenciesReady, "")
	} else {
		set(&f.Status.Conditions, f.Generation, agents.Ready, false, agents.DependenciesNotReady,
			fmt.Sprintf("%d of %d children run", ready, want))
	}
}

// source returns the tag to fork.
func (r *forks) source(ctx context.Context, f *forkdkinds.SandboxFork) (string, error) {
	if name := f.Spec.Source.Snapshot; name != "" {
		res, err := r.snapshots.named(ctx, f.Namespace, name)
		return res.tag, err
	}
	vm, err := r.vmNamed(ctx, f.Namespace, f.Spec.Source.Sandbox)
	if err != nil {
		return "", err
	}
	tag := scratch(f)
	_, err = r.fleet.Client().Branch(ctx, vm.ID, api.BranchRequest{Tag: tag, Labels: forkOwner(f).Labels(nil)})
	if client.ReasonOf(err) == api.ReasonTagTaken || client.CodeOf(err) == api.CodeConflict {
		info, gotErr := r.fleet.Client().Snapshot(ctx, tag)
		if gotErr == nil && info.Labels[fleet.LabelUID] == string(f.UID) && info.Status == api.SnapshotReady {
			return tag, nil
		}
	}
	if err != nil {
		return "", refusal(err)
	}
	return tag, nil
}

// vmNamed returns the running VM of a Sandbox of a namespace.
func (k *core) vmNamed(ctx context.Context, namespace, name string) (api.SandboxInfo, error) {
	var sb agents.Sandbox
	err := k.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &sb)
	missing := &problem{agents.DependenciesNotReady, fmt.Sprintf("no running Sandbox has the name %s", name),
		2 * time.Second}
	if kube.IgnoreNotFound(err) != nil {
		return api.SandboxInfo{}, err
	}
	if err != nil {
		return api.SandboxInfo{}, missing
	}
	owner, id := ownerOf(&sb)
	if id == "" {
		return api.SandboxInfo{}, missing
	}
	vm, state, err := k.vm(ctx, owner, id)
	if err != nil {
		return vm, err
	}
	if state != found {
		return vm, missing
	}
	return vm, nil
}

// follow marks children that have ended.
func (r *forks) follow(ctx context.Context, f *forkdkinds.SandboxFork) error {
	runs := map[string]api.SandboxInfo{}
	for _, vm := range r.fleet.Of(forkOwner(f)) {
		runs[vm.ID] = vm
	}
	var failed []error
	for i := range f.Status.Children {
		c := &f.Status.Children[i]
		if c.Phase != forkdkinds.ChildRunning {
			continue
		}
		if vm, ok := runs[c.ID]; ok {
			if vm.Status == api.SandboxFailed {
				c.Phase, c.Message = forkdkinds.ChildFailed, short(vm.Reason)
			}
			continue
		}
		ended, err := r.fleet.Gone(ctx, c.ID)
		if err != nil {
			failed = append(failed, err)
		} else if ended {
			c.Phase = forkdkinds.ChildEnded
		}
	}
	r.count(f)
	return errors.Join(failed...)
}
