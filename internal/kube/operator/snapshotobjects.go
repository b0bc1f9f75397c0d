package operator

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

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
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/kube/preload"
)

// snapshotObjects reconciles SandboxSnapshots.
type snapshotObjects struct {
	*core
	copies *preload.Preloader
	wake   chan event.GenericEvent
}

func newSnapshotObjects(k *core) *snapshotObjects {
	return &snapshotObjects{core: k, copies: preload.New(time.Now), wake: wakeups()}
}

func (r *snapshotObjects) register(m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).Named("snapshots").
		For(&forkdkinds.SandboxSnapshot{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		WithOptions(r.options()).Complete(r)
}

// run stops the copies when the operator ends.
func (r *snapshotObjects) run(ctx context.Context) error {
	<-ctx.Done()
	r.copies.Close()
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (r *snapshotObjects) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if res, wait := r.unready(); wait {
		return res, nil
	}
	var s forkdkinds.SandboxSnapshot
	if err := r.Get(ctx, req.NamespacedName, &s); err != nil {
		return reconcile.Result{}, kube.IgnoreNotFound(err)
	}
	if !s.DeletionTimestamp.IsZero() {
		return r.end(ctx, &s)
	}
	ready := isTrue(s.Status.Conditions, agents.Ready)
	if !ready {
		if err := r.protect(ctx, &s); err != nil {
			return reconcile.Result{}, kube.IgnoreNotFound(err)
		}
	}
	before := s.DeepCopy()
	var res reconcile.Result
	var err error
	if !ready {
		err = r.make(ctx, &s)
	}
	refusePush(&s)
	if err != nil {
		res, err = unsteady(err, &s.Status.Conditions, s.Generation)
	} else {
		res = r.distribute(ctx, &s)
	}
	return r.finish(ctx, before, &s, res, err)
}

// tagOf returns the snapshot's name on the nodes. It is the object's own, so a repetition finds it.
func tagOf(s *forkdkinds.SandboxSnapshot) string { return "kube-" + digest(string(s.UID)) }

func (r *snapshotObjects) end(ctx context.Context, s *forkdkinds.SandboxSnapshot) (reconcile.Result, error) {
	if !hasFinalizer(s) {
		return reconcile.Result{}, nil
	}
	r.snapshots.forget(s.Namespace, s.Name)
	if !r.copies.Stop(string(s.UID)) {
		return reconcile.Result{RequeueAfter: 200 * time.Millisecond}, nil
	}
	if s.Spec.DeletionPolicy != agents.Retain {
		err := r.fleet.Client().DeleteSnapshot(ctx, tagOf(s), client.DeleteOptions{Force: true})
		if err == nil || client.IsNotFound(err) {
			err = deleteCopies(ctx, r.cfg, s)
		}
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("delete the snapshot of %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	return reconcile.Result{}, r.release(ctx, s)
}

func snapshotOwner(s *forkdkinds.SandboxSnapshot) fleet.Owner {
	return fleet.Owner{Kind: "SandboxSnapshot", Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)}
}

func (r *snapshotObjects) make(ctx context.Context, s *forkdkinds.SandboxSnapshot) error {
	tag := tagOf(s)
	info, err := r.fleet.Client().Snapshot(ctx, tag)
	pulled := s.Spec.Source.Artifact != nil && err == nil && len(info.Labels) == 0 // an operator ended in between
	if client.IsNotFound(err) || pulled {
		if err := r.capture(ctx, s, tag, pulled); err != nil {
			return err
		}
		info, err = r.fleet.Client().Snapshot(ctx, tag)
	}
	switch {
	case err != nil:
		return refusal(err)
	case info.Labels[fleet.LabelUID] != string(s.UID):
		return invalid(fmt.Errorf("another snapshot has the tag %s", tag))
	case info.Status == api.SnapshotFailed:
		why := ""
		if info.Warning != nil {
			why = *info.Warning
		}
		return invalid(fmt.Errorf("the snapshot failed: %s", why))
	case info.Status != api.SnapshotReady:
		return &problem{agents.DependenciesNotReady, "the snapshot is being written", time.Second}
	}
	describe(s, info)
	return nil
}

func describe(s *forkdkinds.SandboxSnapshot, info api.SnapshotDetail) {
	s.Status.Tag, s.Status.Bytes = info.Tag, info.SizeBytes
	if from := s.Spec.Source.Artifact; from != nil {
		s.Status.ArtifactDigest = digestOf(from.Ref)
	}
	if info.ParentTag != nil {
		s.Status.Parent = *info.ParentTag
	}
	s.Status.Shape = &forkdkinds.Shape{MemoryMiB: int32(min(info.MemoryMiB, math.MaxInt32)), // #nosec G115 -- bounded
		VCPUs: int32(min(info.VCPUs, math.MaxInt32))} // #nosec G115 -- bounded
	if info.PauseMS != nil {
		s.Status.PauseMilliseconds = int64(math.Ceil(*info.PauseMS))
	}
	set(&s.Status.Conditions, s.Generation, agents.Ready, true, agents.DependenciesReady, "")
}

// capture makes the snapshot. One that was pulled lacks its labels only.
func (r *snapshotObjects) capture(ctx context.Context, s *forkdkinds.SandboxSnapshot, tag string, pulled bool) error {
	labels := snapshotOwner(s).Labels(nil)
	if s.Spec.Source.Artifact != nil {
		if !pulled {
			if err := r.pull(ctx, s, tag); err != nil {
				return err
			}
		}
		return labelled(ctx, r.fleet.Client(), tag, labels)
	}
	if name := s.Spec.Source.Sandbox; name != "" {
		vm, err := r.vmNamed(ctx, s.Namespace, name)
		if err != nil {
			return err
		}
		_, err = r.fleet.Client().Branch(ctx, vm.ID, api.BranchRequest{Tag: tag, Labels: labels,
			Mode: api.BranchMode(strings.ToLower(s.Spec.Mode)), MaxPauseMS: float64(s.Spec.MaxPauseMilliseconds)})
		if err != nil {
			return refusal(err)
		}
		return nil
	}
	from := s.Spec.Source.Snapshot
	parent, err := r.snapshots.named(ctx, s.Namespace, from.Name)
	if err != nil {
		return err
	}
	_, err = r.fleet.Client().CreateSnapshot(ctx, api.CreateSnapshotRequest{Tag: tag, From: parent.tag, Exec: from.Exec,
		ExecUser: from.User, ExecTimeoutSecs: float64(from.TimeoutSeconds), Labels: labels}, nil)
	if reason := client.ReasonOf(err); reason == api.ReasonProgramFailed || reason == api.ReasonProgramTimeout {
		return invalid(err)
	}
	if err != nil {
		return refusal(err)
	}
	return nil
}
