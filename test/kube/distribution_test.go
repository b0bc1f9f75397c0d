package kube

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/kube/operator"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// derived makes a snapshot of a child of the nodes' own one.
func (w *world) derived(name string, d *forkdkinds.SnapshotDistribution) *forkdkinds.SandboxSnapshot {
	w.t.Helper()
	s := &forkdkinds.SandboxSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
		Spec: forkdkinds.SandboxSnapshotSpec{Distribution: d,
			Source: forkdkinds.SnapshotSource{Snapshot: &forkdkinds.ParentSnapshot{Name: tag, Exec: []string{"echo", "x"}}}}}
	w.create(s)
	return s
}

// distributed waits for a condition Distributed, of the present spec.
func (w *world) distributed(s *forkdkinds.SandboxSnapshot, reason string, ready int) {
	w.t.Helper()
	generation := s.Generation
	await(w, s, fmt.Sprintf("Distributed has the reason %s, with %d nodes", reason, ready), func() bool {
		c := meta.FindStatusCondition(s.Status.Conditions, forkdkinds.Distributed)
		return c != nil && c.Reason == reason && c.ObservedGeneration >= generation && int(s.Status.ReadyNodes) == ready
	})
}

// inState returns the names of the nodes in a state.
func inState(s *forkdkinds.SandboxSnapshot, state string) (names []string) {
	for _, n := range s.Status.Nodes {
		if n.State == state {
			names = append(names, n.Name)
		}
	}
	return names
}

// having returns the nodes that have a snapshot, by their own answers.
func (w *world) having(tag string) (names []string) {
	w.t.Helper()
	for _, n := range w.cluster.Nodes {
		switch info, err := w.client(n.Name).Snapshot(w.t.Context(), tag); {
		case client.IsNotFound(err):
		case err != nil:
			w.t.Fatal(err)
		case info.Labels[fleet.LabelNamespace] != "team-a":
			w.t.Errorf("the snapshot on %s has the labels %v", n.Name, info.Labels)
		default:
			names = append(names, n.Name)
		}
	}
	return names
}

// hook sets the hook of all nodes' links.
func (w *world) hook(h fakecluster.Hook) {
	for _, n := range w.cluster.Nodes {
		n.Link.Hook(h)
	}
}

// hang waits until the client leaves. The server does not notice that before it has the body.
func hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func aSnapshotIsCopiedToMoreNodes(t *testing.T, s site) {
	n := s.atMost(4)
	w := s.start(t, n)
	w.operate(nil)
	d := w.derived("spread", &forkdkinds.SnapshotDistribution{MinNodes: int32(n - 1)})
	w.distributed(d, "Distributed", n-1)
	ready := inState(d, "Ready")
	if got := w.having(d.Status.Tag); fmt.Sprint(got) != fmt.Sprint(ready) || len(d.Status.Nodes) != n-1 {
		t.Errorf("the nodes %v have it, the status is %+v", got, d.Status.Nodes)
	}
	all := w.writes(func() {
		time.Sleep(s.slow(3500 * time.Millisecond)) // elapses: comparisons with the nodes, which must write nothing
	})
	if sum(all) > 0 {
		t.Errorf("writes without a change: %v", all)
	}
	f := newFork("team-a", "forks", 30, forkdkinds.ForkSource{Snapshot: "spread"})
	w.create(f)
	complete(w, f)
	on := map[string]int{}
	for _, c := range f.Status.Children {
		on[c.Node]++
	}
	if f.Status.Ready != 30 || len(on) != n-1 || slices.ContainsFunc(ready, func(name string) bool { return on[name] == 0 }) {
		t.Errorf("%d children are ready, on %v, the snapshot is on %v", f.Status.Ready, on, ready)
	}
	w.delete(f)
	w.gone(f)
	w.change(d, func() { d.Spec.Distribution.MinNodes = 1 })
	w.distributed(d, "Distributed", n-1)
	// An operator that ends gives its copies up, and the next one begins them again.
	w.hook(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/copy") {
			hang(r)
		} else {
			pass.ServeHTTP(rw, r)
		}
	})
	w.change(d, func() { d.Spec.Distribution.MinNodes = int32(n) })
	w.distributed(d, "Copying", n-1)
	w.stopOp()
	w.hook(nil)
	w.operate(nil)
	w.distributed(d, "Distributed", n)
	w.change(d, func() { d.Spec.Distribution.MinNodes = int32(n + 1) })
	w.distributed(d, "TooFewNodes", n)
	w.change(d, func() { d.Spec.Distribution.Repository = "registry.example.com/py" })
	var text string
	await(w, d, "Published refuses the field", func() bool {
		c := meta.FindStatusCondition(d.Status.Conditions, forkdkinds.Published)
		if c != nil {
			text = c.Message
		}
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == agents.InvalidConfiguration
	})
	if !strings.Contains(text, "distribution.repository") {
		t.Error(text)
	}
	w.change(d, func() { d.Spec.Distribution = nil })
	await(w, d, "the status has no distribution", func() bool {
		return len(d.Status.Nodes) == 0 && d.Status.ReadyNodes == 0 && len(d.Status.Conditions) == 1
	})
	if got := w.having(d.Status.Tag); len(got) != n {
		t.Errorf("without a distribution, the nodes %v have the snapshot", got)
	}
	before := d.DeepCopy()
	d.Spec.Source.Snapshot.Exec = nil
	d.Spec.Distribution = &forkdkinds.SnapshotDistribution{MinNodes: 2}
	if err := w.kube.Patch(t.Context(), d, kube.MergeFrom(before)); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("a change of the source: %v", err)
	}
	w.delete(d)
	w.gone(d)
	if got := w.having(d.Status.Tag); len(got) != 0 {
		t.Errorf("the nodes %v still have the snapshot", got)
	}
}

// The first node that is asked refuses, the second one is lost while it copies, and the one after them is drained.
func aSnapshotFindsOtherNodes(t *testing.T, s site) {
	w := s.start(t, 6)
	w.operate(nil)
	var mu sync.Mutex // guards the variables below
	var refuses, lost string
	copies := map[string]int{}
	for _, n := range w.cluster.Nodes {
		n.Link.Hook(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
			if !strings.HasSuffix(r.URL.Path, "/copy") {
				mu.Lock()
				silent := lost == n.Name
				mu.Unlock()
				if silent {
					dead(rw, r, pass)
				} else {
					pass.ServeHTTP(rw, r)
				}
				return
			}
			mu.Lock()
			copies[n.Name]++
			if refuses == "" {
				refuses = n.Name
			} else if lost == "" && n.Name != refuses {
				lost = n.Name
			}
			refuse, die := refuses == n.Name, lost == n.Name
			mu.Unlock()
			switch {
			case refuse:
				rw.Header().Set("Content-Type", "application/json")
				rw.WriteHeader(http.StatusInsufficientStorage)
				fmt.Fprint(rw, `{"code":"no_space","error":"the disk is full"}`)
			case die:
				hang(r) // until the operator gives up
				dead(rw, r, pass)
			default:
				pass.ServeHTTP(rw, r)
			}
		})
	}
	d := w.derived("spread", &forkdkinds.SnapshotDistribution{MinNodes: 3})
	w.distributed(d, "Distributed", 3)
	mu.Lock()
	names := []string{refuses, lost}
	mu.Unlock()
	failed := d.Status.Nodes[slices.IndexFunc(d.Status.Nodes, func(n forkdkinds.SnapshotNode) bool { return n.Name == refuses })]
	if failed.State != "Failed" || failed.Reason != string(api.CodeNoSpace) || !strings.Contains(failed.Message, "the disk is full") {
		t.Errorf("the node that refuses is %+v", failed)
	}
	ready := inState(d, "Ready")
	if slices.Contains(ready, names[0]) || slices.Contains(ready, names[1]) {
		t.Errorf("the nodes %v are ready, %v cannot have it", ready, names)
	}
	if _, err := w.client(ready[0]).Drain(t.Context(), api.DrainRequest{Mode: api.DrainWait}); err != nil {
		t.Fatal(err)
	}
	await(w, d, "the drained node is replaced", func() bool {
		return slices.Contains(inState(d, "Draining"), ready[0]) && d.Status.ReadyNodes == 3
	})
	// No node is left for the next one, but those that failed are asked again.
	gone := w.cluster.Nodes[slices.Index(nodeNames(w), ready[1])]
	gone.Link.Hook(dead)
	w.distributed(d, "CopyFailed", 2)
	if got := inState(d, "Silent"); !slices.Contains(got, ready[1]) {
		t.Errorf("%v are silent, %s is", got, ready[1])
	}
	mu.Lock()
	before := copies[names[0]]
	mu.Unlock()
	time.Sleep(s.slow(3 * time.Second)) // elapses: comparisons in which nobody may ask again and again
	mu.Lock()
	if n := copies[names[0]] - before; n > 1 {
		t.Errorf("the node that refuses was asked %d times in 3 s", n)
	}
	mu.Unlock()
	// The deletion waits for copies on nodes that do not answer.
	w.delete(d)
	time.Sleep(s.slow(time.Second)) // elapses: attempts to delete
	if err := w.kube.Get(t.Context(), kube.ObjectKeyFromObject(d), d); err != nil {
		t.Errorf("the object is gone before its copy on %s: %v", ready[1], err)
	}
	w.hook(nil)
	w.gone(d)
	if got := w.having(d.Status.Tag); len(got) != 0 {
		t.Errorf("the nodes %v still have the snapshot", got)
	}
}

func nodeNames(w *world) (names []string) {
	for _, n := range w.cluster.Nodes {
		names = append(names, n.Name)
	}
	return names
}

func aSnapshotIsCopiedToNodesWithLabels(t *testing.T, s site) {
	w := s.start(t, 4, "operator")
	w.rights() // they include the labels of Nodes
	w.operate(func(c *operator.Config) { c.REST = w.plane.REST("operator") })
	for _, n := range w.cluster.Nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{"pool": "a"}}}
		if n.Name > "node-b" {
			node.Labels["pool"] = "b"
		}
		w.create(node)
	}
	d := w.derived("spread", &forkdkinds.SnapshotDistribution{MinNodes: 2, NodeSelector: map[string]string{"pool": "b"}})
	w.distributed(d, "Distributed", 2)
	if got := fmt.Sprint(inState(d, "Ready")); got != "[node-c node-d]" {
		t.Errorf("%s are ready, want those with the label", got)
	}
	// A Node that gets the label counts, and one that loses it does not.
	w.change(d, func() { d.Spec.Distribution.MinNodes = 3 })
	w.distributed(d, "TooFewNodes", 2)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	await(w, node, "the Node is there", func() bool { return true })
	w.change(node, func() { node.Labels["pool"] = "b" })
	w.distributed(d, "Distributed", 3)
	w.delete(d)
	w.gone(d)
	if got := w.having(d.Status.Tag); len(got) != 0 {
		t.Errorf("the nodes %v still have the snapshot", got)
	}
}
