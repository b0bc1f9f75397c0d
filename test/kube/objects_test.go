package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	autoscaling "k8s.io/api/autoscaling/v1"
	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/kube/operator"
	"github.com/forkd/forkd/internal/testing/kubebench"
)

func newFork(ns, name string, count int32, source forkdkinds.ForkSource) *forkdkinds.SandboxFork {
	return &forkdkinds.SandboxFork{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: forkdkinds.SandboxForkSpec{Count: count, Source: source}}
}

func complete(w *world, f *forkdkinds.SandboxFork) *forkdkinds.SandboxFork {
	w.t.Helper()
	return await(w, f, "the fork is complete", func() bool {
		return meta.IsStatusConditionTrue(f.Status.Conditions, forkdkinds.Complete)
	})
}

func aForkIsThreeWritesForAnyNumberOfChildren(t *testing.T, s site) {
	w := s.start(t, 3)
	w.operate(func(c *operator.Config) { c.Every = 500 * time.Millisecond })
	first := newFork("team-a", "first", 1, forkdkinds.ForkSource{Snapshot: tag})
	w.create(first) // the operator has written the Event of its election before
	w.delete(complete(w, first))
	w.gone(first)
	w.sandboxes(0)
	total := 0
	for _, n := range pick(s, []int32{1, 10, 100, 1000}, []int32{1, 8, 20}) {
		f := newFork("team-a", fmt.Sprintf("f%d", n), n, forkdkinds.ForkSource{Snapshot: tag})
		f.Spec.Env = map[string]string{"WHO": "child"}
		began := time.Now()
		var took time.Duration
		all := w.writes(func() {
			w.create(f)
			complete(w, f)
			took = time.Since(began)
			time.Sleep(1200 * time.Millisecond) // elapses: two comparisons with the nodes, which must write nothing
		})
		t.Logf("fork of %d: %d writes %v, complete after %s", n, sum(all), all, took.Round(time.Millisecond))
		if sum(all) > 3 {
			t.Errorf("a fork of %d made %d writes, want at most 3: %v", n, sum(all), all)
		}
		if f.Status.Ready != n || len(f.Status.Children) != int(n) || !meta.IsStatusConditionTrue(f.Status.Conditions, agents.Ready) {
			t.Errorf("the fork of %d has %d ready of %d children", n, f.Status.Ready, len(f.Status.Children))
		}
		total += int(n)
		w.sandboxes(total)
		if out := w.exec(f.Status.Children[0].ID, "env"); !strings.Contains(out, "WHO=child") {
			t.Errorf("the environment is %q", out)
		}
		if n >= 20 {
			w.delete(f)
			w.gone(f)
			total -= int(n)
			w.sandboxes(total)
		}
	}
}

// A hundred children are made by all nodes together, and all of them answer.
func aForkOfAHundred(t *testing.T, s site) {
	for _, nodes := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			w := s.start(t, nodes)
			w.operate(nil)
			f := newFork("team-a", "hundred", 100, forkdkinds.ForkSource{Snapshot: tag})
			began := time.Now()
			w.create(f)
			w.within(time.Minute, func() string { return fmt.Sprintf("the fork is complete: %+v", f.Status.Conditions) }, func() bool {
				return w.kube.Get(t.Context(), kube.ObjectKeyFromObject(f), f) == nil && meta.IsStatusConditionTrue(f.Status.Conditions, forkdkinds.Complete)
			})
			on := map[string]int{}
			for _, c := range f.Status.Children {
				if c.Phase != forkdkinds.ChildRunning {
					t.Fatalf("child %d is %s: %s", c.Index, c.Phase, c.Message)
				}
				on[c.Node]++
			}
			t.Logf("fork of 100 over %d nodes, complete after %s: %v", nodes, time.Since(began).Round(time.Millisecond), on)
			if len(on) != nodes {
				t.Errorf("the children are on %v", on)
			}
			for i := 0; i < 100; i += 7 {
				if out := w.exec(f.Status.Children[i].ID, "echo", "here"); !strings.Contains(out, "here") {
					t.Errorf("child %d answers %q", i+1, out)
				}
			}
			w.delete(f)
			w.gone(f)
			w.sandboxes(0)
		})
	}
}

func aForkOfASandboxAndItsEnd(t *testing.T, s site) {
	w := s.start(t, 2)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	c := newClaim("team-a", "one", "pool")
	w.create(c)
	w.ready(c)
	f := newFork("team-a", "forks", 3, forkdkinds.ForkSource{Sandbox: c.Status.Sandbox.Name})
	w.create(f)
	complete(w, f)
	w.sandboxes(4)
	if err := w.forkd.Kill(t.Context(), f.Status.Children[1].ID); err != nil {
		t.Fatal(err)
	}
	await(w, f, "a child has ended", func() bool {
		return f.Status.Failed == 1 && f.Status.Children[1].Phase == forkdkinds.ChildEnded
	})
	foreign := newFork("team-b", "forks", 1, forkdkinds.ForkSource{Sandbox: c.Status.Sandbox.Name})
	w.create(foreign)
	await(w, foreign, "another namespace finds no sandbox", reason(&foreign.Status.Conditions, agents.DependenciesNotReady, nil))
	w.delete(f)
	w.gone(f)
	w.sandboxes(1)
	if list, err := w.forkd.ListSnapshots(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("snapshots %v, %v: the one between sandbox and children is left", list, err)
	}
}

func snapshotsBelongToTheirNamespace(t *testing.T, s site) {
	w := s.start(t, 2)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	c := newClaim("team-a", "one", "pool")
	w.create(c)
	w.ready(c)
	of := func(ns, name string, source forkdkinds.SnapshotSource) *forkdkinds.SandboxSnapshot {
		s := &forkdkinds.SandboxSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: forkdkinds.SandboxSnapshotSpec{Source: source}}
		w.create(s)
		return s
	}
	ready := func(s *forkdkinds.SandboxSnapshot) {
		t.Helper()
		await(w, s, "the snapshot is ready", func() bool { return meta.IsStatusConditionTrue(s.Status.Conditions, agents.Ready) })
	}
	live := of("team-a", "live", forkdkinds.SnapshotSource{Sandbox: c.Status.Sandbox.Name})
	ready(live)
	derived := of("team-a", "derived", forkdkinds.SnapshotSource{Snapshot: &forkdkinds.ParentSnapshot{Name: "live", Exec: []string{"echo", "x"}}})
	ready(derived)
	if derived.Status.Parent != live.Status.Tag || derived.Status.Shape == nil || derived.Status.Shape.MemoryMiB == 0 {
		t.Errorf("the status is %+v, want the parent %s", derived.Status, live.Status.Tag)
	}
	stolen := of("team-b", "stolen", forkdkinds.SnapshotSource{Snapshot: &forkdkinds.ParentSnapshot{Name: live.Status.Tag}})
	await(w, stolen, "another namespace's tag is unknown", reason(&stolen.Status.Conditions, agents.DependenciesNotReady, nil))
	for _, name := range []string{live.Status.Tag, "live"} {
		f := newFork("team-b", "steal-"+name, 1, forkdkinds.ForkSource{Snapshot: name})
		w.create(f)
		await(w, f, "another namespace cannot fork it", reason(&f.Status.Conditions, agents.DependenciesNotReady, nil))
	}
	f := newFork("team-a", "mine", 2, forkdkinds.ForkSource{Snapshot: "derived"})
	w.create(f)
	complete(w, f)
	w.sandboxes(3)
	err := w.kube.Create(t.Context(), &forkdkinds.SandboxSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "both"},
		Spec: forkdkinds.SandboxSnapshotSpec{Source: forkdkinds.SnapshotSource{Sandbox: "a", Snapshot: &forkdkinds.ParentSnapshot{Name: "b"}}}})
	if err == nil || !strings.Contains(err.Error(), "exactly one") {
		t.Errorf("two sources: %v", err)
	}
	before := derived.DeepCopy()
	derived.Spec.Mode = "Full"
	if err := w.kube.Patch(t.Context(), derived, kube.MergeFrom(before)); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("a change of the spec: %v", err)
	}
	for _, s := range []*forkdkinds.SandboxSnapshot{derived, live, stolen} {
		w.delete(s)
		w.gone(s)
	}
	if list, err := w.forkd.ListSnapshots(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("snapshots are left: %v, %v", list, err)
	}
}

func namespacesDoNotReachEachOthersSandboxes(t *testing.T, s site) {
	w := s.start(t, 1)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	c := newClaim("team-a", "one", "pool")
	w.create(c)
	w.ready(c)
	id := c.Status.Sandbox.Name
	yes := true
	forged := &agents.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: id, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: extensions.GroupVersion.String(), Kind: "SandboxClaim", Name: c.Name, UID: c.UID, Controller: &yes}}},
		Spec: agents.SandboxSpec{OperatingMode: agents.Suspended, Blueprint: agents.Blueprint{PodTemplate: podTemplate(`{"containers":[{"name":"a"}]}`)}}}
	w.create(forged)
	// The garbage collector may delete it first, because its owner is in another namespace.
	w.within(20*time.Second, func() string { return "the forged Sandbox has no VM" }, func() bool {
		err := w.kube.Get(t.Context(), kube.ObjectKeyFromObject(forged), forged)
		return err != nil || meta.IsStatusConditionTrue(forged.Status.Conditions, agents.Finished)
	})
	_ = w.kube.Delete(t.Context(), forged)
	w.gone(forged)
	status := &agents.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "thief", Annotations: map[string]string{"forkd.dev/snapshot": "missing"}},
		Spec: agents.SandboxSpec{Blueprint: agents.Blueprint{PodTemplate: podTemplate(`{"containers":[{"name":"a"}]}`)}}}
	w.create(status)
	before := status.DeepCopy()
	status.Status.SandboxID = id
	if err := w.kube.Status().Patch(t.Context(), status, kube.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	await(w, status, "a forged id is no VM of the Sandbox", reason(&status.Status.Conditions, agents.PodFailed, nil))
	w.delete(status)
	w.gone(status)
	if vm, err := w.forkd.Sandbox(t.Context(), id); err != nil || vm.Status != api.SandboxRunning {
		t.Errorf("the sandbox is %q, %v", vm.Status, err)
	}
	w.ready(c)
}

func aWarmPoolIsPreparedShells(t *testing.T, s site) {
	w := s.start(t, 3)
	w.operate(nil)
	w.pool("team-a", "pool", 7, nil)
	w.pool("team-b", "pool", 3, nil)
	p := &extensions.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "pool"}}
	await(w, p, "the shells are ready", func() bool { return p.Status.ReadyReplicas == 7 })
	sizes := func() (all []int) {
		for _, n := range w.cluster.Nodes {
			list, err := w.client(n.Name).Pools(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, p := range list {
				size += p.Size
			}
			all = append(all, size)
		}
		return all
	}
	if got := fmt.Sprint(sizes()); got != "[4 3 3]" {
		t.Errorf("the nodes keep %s shells, want [4 3 3]", got)
	}
	scale := &autoscaling.Scale{Spec: autoscaling.ScaleSpec{Replicas: 2}}
	if err := w.kube.SubResource("scale").Update(t.Context(), p, kube.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	w.within(20*time.Second, func() string { return fmt.Sprint("5 shells, are ", sizes()) }, func() bool { return fmt.Sprint(sizes()) == "[2 2 1]" })
	await(w, p, "the pool has 2", func() bool { return p.Status.Replicas == 2 && p.Status.ReadyReplicas == 2 })
	w.delete(p)
	w.delete(&extensions.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "pool"}})
	w.within(20*time.Second, func() string { return fmt.Sprint("no shells, are ", sizes()) }, func() bool { return fmt.Sprint(sizes()) == "[0 0 0]" })
	w.sandboxes(0)
}

func nodesAreShown(t *testing.T, s site) {
	w := s.start(t, 2)
	w.operate(nil)
	n := &forkdkinds.ForkdNode{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}
	await(w, n, "the node is ready", func() bool { return meta.IsStatusConditionTrue(n.Status.Conditions, agents.Ready) })
	version, err := w.client("node-b").Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n.Status.Key != string(w.cluster.Nodes[1].Key) || n.Status.Version != version.Version || len(n.Status.Snapshots) != 1 {
		t.Errorf("the status is %+v", n.Status)
	}
	w.cluster.Nodes[1].Link.Hook(dead)
	await(w, n, "the node is silent", reason(&n.Status.Conditions, "Silent", nil))
	w.cluster.WriteList(t, w.cluster.Nodes[0])
	w.gone(n)
}

func aBootImageBecomesASnapshotOnce(t *testing.T, s site) {
	w := s.start(t, 1)
	w.operate(nil)
	for _, name := range []string{"one", "two"} {
		w.create(&agents.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
			Spec: agents.SandboxSpec{Blueprint: agents.Blueprint{PodTemplate: podTemplate(`{"containers":[{"name":"a","image":"` + s.image() + `"}]}`)}}})
	}
	w.sandboxes(2)
	if list, err := w.forkd.ListSnapshots(t.Context(), "image="+s.image()); err != nil || len(list) != 2 {
		t.Errorf("snapshots %d, %v: want the cluster's and one of the image", len(list), err)
	}
}

func TestTheOperatorDoesNotRunBesideAgentSandboxsController(t *testing.T) {
	w := site{}.start(t, 1)
	now, holder, lasts := metav1.NowMicro(), "agent-sandbox-controller-0", int32(15)
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "a3317529.agent-sandbox.x-k8s.io"},
		Spec: coordination.LeaseSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &lasts}}
	w.create(lease)
	run := func() error {
		return operator.Run(t.Context(), operator.Config{REST: w.plane.REST(kubebench.Token), Forkd: w.forkd, Namespace: "forkd-system", Every: 500 * time.Millisecond})
	}
	if err := run(); err == nil || !strings.Contains(err.Error(), holder) {
		t.Errorf("the operator ended with %v, want the other's name", err)
	}
	w.change(lease, func() { old := metav1.NewMicroTime(time.Now().Add(-time.Hour)); lease.Spec.RenewTime = &old })
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	time.Sleep(2 * time.Second) // elapses: the operator runs, and compares twice
	select {
	case err := <-ended:
		t.Fatalf("beside an old Lease the operator ended with %v", err)
	default:
	}
	w.change(lease, func() { now := metav1.NowMicro(); lease.Spec.RenewTime = &now })
	if err := <-ended; err == nil || !strings.Contains(err.Error(), holder) {
		t.Errorf("the operator ended with %v, want the other's name", err)
	}
}
