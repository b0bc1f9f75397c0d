package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/kube/preload"
)

const (
	// A silent node is replaced after so many intervals, and not before shortSilence. A daemon that restarts is not.
	lostAfter    = 4
	shortSilence = 10 * time.Second
	// labelTime limits the first read of the labels of Nodes, which waits for the API server.
	labelTime = 5 * time.Second
	// reasonNodesUnknown is the reason of labels that cannot be read.
	reasonNodesUnknown = "NodesUnknown"
)

// refusePush names the fields that the operator does not serve.
func refusePush(s *forkdkinds.SandboxSnapshot) {
	field := ""
	switch d := s.Spec.Distribution; {
	case d == nil:
	case d.Repository != "":
		field = "repository"
	case d.SecretRef != nil:
		field = "secretRef"
	}
	if field == "" {
		meta.RemoveStatusCondition(&s.Status.Conditions, forkdkinds.Published)
		return
	}
	set(&s.Status.Conditions, s.Generation, forkdkinds.Published, false, agents.InvalidConfiguration,
		"distribution."+field+" is not served: the operator pushes no snapshots")
}

// distribute lets nodes copy a ready snapshot, and describes which have it. It looks again at an interval, because
// nodes come and go.
func (r *snapshotObjects) distribute(ctx context.Context, s *forkdkinds.SandboxSnapshot) reconcile.Result {
	d := s.Spec.Distribution
	if d == nil {
		r.copies.Stop(string(s.UID))
		meta.RemoveStatusCondition(&s.Status.Conditions, forkdkinds.Distributed)
		s.Status.Nodes, s.Status.ReadyNodes = nil, 0
		return reconcile.Result{}
	}
	again := reconcile.Result{RequeueAfter: r.cfg.Every}
	if r.cfg.Nodes == nil || r.cfg.Node == nil {
		set(&s.Status.Conditions, s.Generation, forkdkinds.Distributed, false, preload.TooFewNodes,
			"the operator has no list of nodes")
		return reconcile.Result{}
	}
	selected, err := r.selected(ctx, d.NodeSelector)
	if err != nil {
		set(&s.Status.Conditions, s.Generation, forkdkinds.Distributed, false, reasonNodesUnknown, err.Error())
		return again
	}
	report := r.copies.Step(r.job(s), lookAt(r.cfg, tagOf(s), selected))
	s.Status.ReadyNodes, s.Status.Nodes = whole(report.Ready), nil
	for _, row := range report.Rows {
		s.Status.Nodes = append(s.Status.Nodes, forkdkinds.SnapshotNode{Name: row.Name, State: string(row.State),
			Reason: row.Code, Message: row.Message})
	}
	set(&s.Status.Conditions, s.Generation, forkdkinds.Distributed, report.Reason == preload.Distributed, report.Reason,
		report.Message)
	if report.Waits {
		again.RequeueAfter = min(again.RequeueAfter, 2*time.Second)
	}
	return again
}

// job describes the copies of a snapshot.
func (r *snapshotObjects) job(s *forkdkinds.SandboxSnapshot) preload.Job {
	tag, labels := tagOf(s), snapshotOwner(s).Labels(nil)
	wake := event.GenericEvent{Object: &forkdkinds.SandboxSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}}
	return preload.Job{ID: string(s.UID), Want: int(s.Spec.Distribution.MinNodes),
		Copy: func(ctx context.Context, node string, peers []string) error {
			return copySnapshot(ctx, r.cfg, node, tag, labels, peers)
		},
		Code: func(err error) string { return cmp.Or(string(client.CodeOf(err)), string(api.CodeInternal)) },
		Ended: func() {
			select {
			case r.wake <- wake:
			default: // the interval looks again
			}
		}}
}

// copySnapshot lets a node copy a snapshot from its peers.
func copySnapshot(ctx context.Context, cfg Config, node, tag string, labels map[string]string, peers []string) error {
	at, err := cfg.Node(node)
	if err != nil {
		return err
	}
	_, err = at.CopySnapshot(ctx, tag, peers)
	if err != nil && client.ReasonOf(err) != api.ReasonTagTaken { // it has the snapshot, for a fork
		return err
	}
	if n := cfg.Nodes.ByName(node); n != nil {
		defer n.Look()
	}
	return labelled(ctx, at, tag, labels)
}

// lookAt returns what is known about the nodes and a snapshot. A nil selection has all nodes.
func lookAt(cfg Config, tag string, selected map[string]bool) (out []preload.Node) {
	patience := max(lostAfter*cfg.Every, shortSilence)
	for _, n := range cfg.Nodes.All() {
		facts, seen := n.Facts()
		o := preload.Node{Name: n.Name, URL: n.URL.String(), Seen: seen, Up: n.Up(),
			Recent: !n.Foreign() && time.Since(seen) < patience,
			Takes:  !facts.Draining && facts.Admits != api.AdmitsNone, Selected: selected == nil || selected[n.Name],
			More: facts.Truncated, CPU: facts.CPU.Vendor, DiskFree: facts.Disk.Free, DiskTotal: facts.Disk.Total}
		for _, s := range facts.Snapshots {
			if s.Tag == tag {
				o.Has, o.Bytes = true, s.Bytes
			}
		}
		out = append(out, o)
	}
	return out
}

// selected returns the names of the Nodes with labels, or nil without labels. Only metadata is read.
func (r *snapshotObjects) selected(ctx context.Context, labels map[string]string) (map[string]bool, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, labelTime)
	defer cancel()
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := r.List(ctx, &list, kube.MatchingLabels(labels)); err != nil {
		if apierrors.IsForbidden(err) || ctx.Err() != nil {
			return nil, fmt.Errorf("the labels of Nodes cannot be read: nodeSelector needs the rights get, list and "+
				"watch of nodes: %w", err)
		}
		return nil, fmt.Errorf("the labels of Nodes cannot be read: %w", err)
	}
	out := map[string]bool{}
	for _, n := range list.Items {
		out[n.Name] = true
	}
	return out, nil
}

// deleteCopies deletes the snapshot on the nodes that may have it still. The gateway knows those of its last poll only,
// and skips nodes that do not answer. A node that has left the list is not waited for.
func deleteCopies(ctx context.Context, cfg Config, s *forkdkinds.SandboxSnapshot) error {
	if cfg.Nodes == nil || cfg.Node == nil || s.Spec.Distribution == nil && len(s.Status.Nodes) == 0 {
		return nil
	}
	tag := tagOf(s)
	for _, n := range cfg.Nodes.All() {
		if !mayHave(n, s, tag) {
			continue
		}
		at, err := cfg.Node(n.Name)
		if err == nil {
			err = at.DeleteSnapshot(ctx, tag, client.DeleteOptions{Force: true})
		}
		if err != nil && !client.IsNotFound(err) {
			return fmt.Errorf("on node %s: %w", n.Name, err)
		}
		n.Look()
	}
	return nil
}

// mayHave reports whether a node may have the snapshot. One that failed to copy it, and does not answer, has not.
func mayHave(n *nodes.Node, s *forkdkinds.SandboxSnapshot, tag string) bool {
	facts, _ := n.Facts()
	return slices.ContainsFunc(facts.Snapshots, func(f api.NodeSnapshot) bool { return f.Tag == tag }) ||
		slices.ContainsFunc(s.Status.Nodes, func(row forkdkinds.SnapshotNode) bool {
			return row.Name == n.Name && (row.State != string(preload.Failed) || n.Up())
		})
}
