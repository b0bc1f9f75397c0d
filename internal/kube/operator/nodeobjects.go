package operator

import (
	"context"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/kube/placement"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// nodeObjects writes a ForkdNode for each node of the list.
type nodeObjects struct{ *core }

// pace is the shortest time between two statuses of a node: its figures change all the time.
const pace = 10 * time.Second

// maxRows limits the pools and the snapshots in a status.
const maxRows = 256

func (r *nodeObjects) run(ctx context.Context) error {
	if r.cfg.Nodes == nil {
		return nil
	}
	for {
		if err := r.write(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("ForkdNodes were not written", "error", err)
		}
		if !ctxsleep.For(ctx, max(r.cfg.Every, pace)) {
			return nil
		}
	}
}

func (r *nodeObjects) write(ctx context.Context) error {
	listed := map[string]bool{}
	for _, n := range r.cfg.Nodes.All() {
		listed[n.Name] = true
		if err := r.one(ctx, n); err != nil {
			return err
		}
	}
	if r.cfg.Nodes.Ready() != nil { // the list may be unreadable
		return nil
	}
	var list forkdkinds.ForkdNodeList
	if err := r.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		if n := &list.Items[i]; !listed[n.Name] {
			if err := kube.IgnoreNotFound(r.Delete(ctx, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *nodeObjects) one(ctx context.Context, n *nodes.Node) error {
	var o forkdkinds.ForkdNode
	err := r.Get(ctx, types.NamespacedName{Name: n.Name}, &o)
	if apierrors.IsNotFound(err) {
		o.Name = n.Name
		err = r.Create(ctx, &o)
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache is older
		}
	}
	if err != nil {
		return err
	}
	before := o.DeepCopy()
	facts, seen := n.Facts()
	if !seen.IsZero() {
		statusOf(&o.Status, facts)
	}
	o.Status.Address = n.URL.String()
	switch {
	case n.Foreign():
		set(&o.Status.Conditions, 0, agents.Ready, false, "OtherNode", "another node answers at the address")
	case !n.Up():
		set(&o.Status.Conditions, 0, agents.Ready, false, "Silent", "the daemon does not answer")
	case facts.Draining:
		set(&o.Status.Conditions, 0, agents.Ready, false, "Draining", "the daemon takes no new sandboxes")
	default:
		set(&o.Status.Conditions, 0, agents.Ready, true, "Answers", "")
	}
	return r.save(ctx, before, &o)
}

// statusOf describes a node by its facts.
func statusOf(s *forkdkinds.ForkdNodeStatus, f api.Node) {
	s.UID, s.Key, s.Version, s.Kernel = f.UID, f.Key, f.Version, f.Kernel
	s.Memory = forkdkinds.NodeMemory{BudgetMiB: steps(f.Memory.Total), UsedMiB: steps(f.Memory.Total - f.Memory.Free)}
	s.Sandboxes.Running = whole(f.Sandboxes.Running)
	s.Pools, s.Snapshots = nil, nil
	for _, p := range f.Pools[:min(len(f.Pools), maxRows)] {
		s.Pools = append(s.Pools, forkdkinds.NodePool{Tag: p.Tag, Ready: whole(p.Ready), Want: whole(p.Want)})
	}
	for _, n := range f.Snapshots[:min(len(f.Snapshots), maxRows)] {
		s.Snapshots = append(s.Snapshots, forkdkinds.NodeSnapshot{Tag: n.Tag, ContentHash: n.ContentHash, Bytes: n.Bytes})
	}
	full := f.Disk.Total > 0 && float64(f.Disk.Free) < placement.DiskFloor*float64(f.Disk.Total)
	set(&s.Conditions, 0, "DiskPressure", full, "FreeSpace", "")
}

// steps returns MiB in steps of 64.
func steps(bytes int64) int64 { return max(0, bytes) >> 26 << 6 }

func whole(n int) int32 { return int32(max(0, min(n, math.MaxInt32))) } // #nosec G115 -- bounded
