package operator

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// sweeper compares the sandboxes on the nodes with the objects. It wakes the reconcilers of changed sandboxes, and ends
// sandboxes without an object: of a claim deleted during a crash, or a second one after a lost answer.
type sweeper struct {
	*core
	claims, sandboxes, forks chan event.GenericEvent
}

func (s *sweeper) run(ctx context.Context) error {
	for {
		changed, err := s.fleet.Refresh(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("sandboxes cannot be listed", "error", err)
		}
		for _, c := range changed {
			s.wakeUp(ctx, c)
		}
		if err == nil {
			for _, vm := range s.fleet.All() {
				s.judge(ctx, vm)
			}
		}
		if !ctxsleep.For(ctx, s.cfg.Every) {
			return nil
		}
	}
}

func (s *sweeper) wakeUp(ctx context.Context, c fleet.Change) {
	at := metav1.ObjectMeta{Namespace: c.Owner.Namespace, Name: c.Owner.Name}
	send := func(to chan event.GenericEvent, o kube.Object) {
		select {
		case to <- event.GenericEvent{Object: o}:
		case <-ctx.Done():
		}
	}
	switch c.Owner.Kind {
	case kindClaim:
		send(s.claims, &extensions.SandboxClaim{ObjectMeta: at})
		at.Name = c.ID
		send(s.sandboxes, &agents.Sandbox{ObjectMeta: at})
	case kindSandbox:
		send(s.sandboxes, &agents.Sandbox{ObjectMeta: at})
	case kindFork:
		send(s.forks, &forkdkinds.SandboxFork{ObjectMeta: at})
	}
}

// judge ends a sandbox that no object wants. The API server has the last word, because the cache may be older than the
// sandbox.
func (s *sweeper) judge(ctx context.Context, vm api.SandboxInfo) {
	owner, _ := fleet.OwnerOf(vm.Labels)
	if wanted, err := s.wanted(ctx, s.Client, owner, vm.ID); err != nil || wanted {
		return
	}
	wanted, err := s.wanted(ctx, s.live, owner, vm.ID)
	if err != nil || wanted {
		return
	}
	s.log.Info("sandbox without an object ends", "sandbox", vm.ID, "kind", owner.Kind, "namespace", owner.Namespace,
		"name", owner.Name)
	if err := s.fleet.End(ctx, vm.ID); err != nil && ctx.Err() == nil {
		s.log.Warn("sandbox without an object did not end", "sandbox", vm.ID, "error", err)
	}
}

// wanted reports whether an object wants a sandbox. Sandboxes of unknown kinds are wanted.
func (s *sweeper) wanted(ctx context.Context, r kube.Reader, o fleet.Owner, id string) (bool, error) {
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	switch o.Kind {
	case kindClaim:
		var c extensions.SandboxClaim
		if ok, err := get(ctx, r, key, &c); err != nil || ok && string(c.UID) == o.UID &&
			(c.Status.Sandbox.Name == "" || c.Status.Sandbox.Name == id) && !isTrue(c.Status.Conditions, agents.Finished) {
			return true, err
		}
		// The Sandbox of a deleted or ended claim ends its VM itself.
		var sb agents.Sandbox
		ok, err := get(ctx, r, types.NamespacedName{Namespace: o.Namespace, Name: id}, &sb)
		if !ok || err != nil {
			return false, err
		}
		ref := claimOf(&sb)
		return ref != nil && string(ref.UID) == o.UID, nil
	case kindSandbox:
		var sb agents.Sandbox
		ok, err := get(ctx, r, key, &sb)
		return ok && string(sb.UID) == o.UID && (sb.Status.SandboxID == "" || sb.Status.SandboxID == id), err
	case kindFork:
		var f forkdkinds.SandboxFork
		ok, err := get(ctx, r, key, &f)
		if !ok || err != nil || string(f.UID) != o.UID {
			return false, err
		}
		if !isTrue(f.Status.Conditions, forkdkinds.Complete) {
			return true, nil
		}
		for _, c := range f.Status.Children {
			if c.ID == id {
				return true, nil
			}
		}
		return false, nil
	}
	return true, nil
}

// get reports whether an object exists.
func get(ctx context.Context, r kube.Reader, key types.NamespacedName, o kube.Object) (bool, error) {
	err := r.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
