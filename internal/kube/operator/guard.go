package operator

import (
	"context"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// upstreamLease is the Lease of agent-sandbox's own controller. Two controllers on one object would fight.
const upstreamLease = "a3317529.agent-sandbox.x-k8s.io"

// UpstreamError reports a running controller of agent-sandbox.
type UpstreamError struct {
	// Lease is the namespace and name of its Lease, Holder the holder's identity.
	Lease, Holder string
}

func (e *UpstreamError) Error() string {
	return fmt.Sprintf("the controller of agent-sandbox runs (Lease %s, holder %s): stop it first, because two "+
		"controllers would change the same objects", e.Lease, e.Holder)
}

// upstream returns an UpstreamError if the Lease of agent-sandbox's controller is valid.
func upstream(ctx context.Context, r kube.Reader, now time.Time) error {
	var leases coordination.LeaseList
	if err := r.List(ctx, &leases, kube.MatchingFields{"metadata.name": upstreamLease}); err != nil {
		return fmt.Errorf("look for the controller of agent-sandbox: %w", err)
	}
	for _, l := range leases.Items {
		s := l.Spec
		if l.Name != upstreamLease || s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil {
			continue
		}
		lasts := 15 * time.Second
		if s.LeaseDurationSeconds != nil {
			lasts = time.Duration(*s.LeaseDurationSeconds) * time.Second
		}
		if now.Before(s.RenewTime.Add(lasts + 5*time.Second)) { // clocks differ
			return &UpstreamError{Lease: l.Namespace + "/" + l.Name, Holder: *s.HolderIdentity}
		}
	}
	return nil
}

// watchUpstream ends the operator when agent-sandbox's controller appears.
func (k *core) watchUpstream(ctx context.Context) error {
	for ctxsleep.For(ctx, k.cfg.Every) {
		err := upstream(ctx, k.live, time.Now())
		if up := new(UpstreamError); asError(err, &up) {
			return up
		}
		if err != nil && ctx.Err() == nil {
			k.log.Warn("Leases cannot be read", "error", err)
		}
	}
	return nil
}
