package operator

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/kube/objects/agents"
)

// problem is the reason why an object is not ready.
type problem struct {
	reason, text string
	// again is the time until the next attempt. 0 means backoff.
	again time.Duration
}

func (p *problem) Error() string { return p.text }

// invalid is a problem of the user's objects. They are looked at again, because a template may change.
func invalid(err error) error {
	return &problem{agents.InvalidConfiguration, err.Error(), time.Minute}
}

// refusal makes a problem of an error of a node or gateway.
func refusal(err error) error {
	switch client.CodeOf(err) {
	case api.CodeInvalid, api.CodeUnsupported, api.CodeTooLarge, api.CodeNotRestorable:
		return invalid(err)
	}
	return &problem{agents.DependenciesNotReady, err.Error(), 0}
}

func asError[E error](err error, target *E) bool { return errors.As(err, target) }

// maxMessage is the API server's limit of a condition's message, in bytes.
const maxMessage = 32768

// set changes a condition.
func set(list *[]metav1.Condition, generation int64, kind string, on bool, reason, text string) {
	status := metav1.ConditionFalse
	if on {
		status = metav1.ConditionTrue
	}
	if len(text) > maxMessage {
		text = text[:maxMessage]
	}
	meta.SetStatusCondition(list, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: text,
		ObservedGeneration: generation})
}

func isTrue(list []metav1.Condition, kind string) bool { return meta.IsStatusConditionTrue(list, kind) }

// unsteady reports a problem in a condition, and asks for the next attempt.
func unsteady(err error, list *[]metav1.Condition, generation int64) (reconcile.Result, error) {
	p := &problem{agents.ReconcilerError, err.Error(), 0}
	_ = errors.As(err, &p)
	set(list, generation, agents.Ready, false, p.reason, p.text)
	if p.again > 0 {
		return reconcile.Result{RequeueAfter: p.again}, nil
	}
	return reconcile.Result{}, err
}

// save writes a status if it differs from before. A status has one writer, so the patch needs no version.
func (k *core) save(ctx context.Context, before, after kube.Object) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return kube.IgnoreNotFound(k.Status().Patch(ctx, after, kube.MergeFrom(before)))
}

// finish saves a status after an attempt. The error of the attempt counts more than that of the write.
func (k *core) finish(ctx context.Context, before, after kube.Object, res reconcile.Result,
	err error) (reconcile.Result, error) {
	if saved := k.save(ctx, before, after); err == nil {
		err = saved
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return res, nil
}

// protect adds the finalizer, and reports whether it was missing.
func (k *core) protect(ctx context.Context, o kube.Object) error {
	before, ok := o.DeepCopyObject().(kube.Object)
	if !ok || hasFinalizer(o) {
		return nil
	}
	o.SetFinalizers(append(o.GetFinalizers(), Finalizer))
	return k.Patch(ctx, o, kube.MergeFromWithOptions(before, kube.MergeFromWithOptimisticLock{}))
}

// release removes the finalizer.
func (k *core) release(ctx context.Context, o kube.Object) error {
	before, ok := o.DeepCopyObject().(kube.Object)
	if !ok || !hasFinalizer(o) {
		return nil
	}
	var rest []string
	for _, f := range o.GetFinalizers() {
		if f != Finalizer {
			rest = append(rest, f)
		}
	}
	o.SetFinalizers(rest)
	return kube.IgnoreNotFound(k.Patch(ctx, o, kube.MergeFromWithOptions(before, kube.MergeFromWithOptimisticLock{})))
}

func hasFinalizer(o kube.Object) bool {
	for _, f := range o.GetFinalizers() {
		if f == Finalizer {
			return true
		}
	}
	return false
}

// until returns a result that looks at an object again at a time. The zero time means never.
func until(at time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(time.Until(at), 10*time.Millisecond)}
}

// timeOf returns the zero time for nil.
func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func past(t *metav1.Time) bool { return t != nil && !time.Now().Before(t.Time) }
