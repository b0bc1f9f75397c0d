package operator

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// copied is a SandboxSnapshot whose snapshot is on the first of some nodes, and the reconciler of it.
type copied struct {
	*snapshotObjects
	t       *testing.T
	cluster *fakecluster.Cluster
	object  *forkdkinds.SandboxSnapshot
	writes  int // of statuses
}

func newCopied(t *testing.T, nodes int, policy string, d *forkdkinds.SnapshotDistribution) *copied {
	t.Helper()
	w := &copied{t: t, cluster: fakecluster.Start(t, nodes, "", nil), object: &forkdkinds.SandboxSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", UID: "u", Generation: 1, Finalizers: []string{Finalizer}},
		Spec:       forkdkinds.SandboxSnapshotSpec{Distribution: d, DeletionPolicy: policy}}}
	set(&w.object.Status.Conditions, 1, agents.Ready, true, agents.DependenciesReady, "")
	_, err := w.cluster.Nodes[0].Daemon.Engine.CreateSnapshot(t.Context(),
		sandbox.CreateRequest{Tag: tagOf(w.object), Image: "python-numpy"}, func(sandbox.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.object).WithStatusSubresource(w.object).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c kube.Client, sub string,
			o kube.Object, p kube.Patch, opts ...kube.SubResourcePatchOption) error {
			w.writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}}).Build()
	at := func(name string) (*client.Client, error) {
		return client.New(client.Options{URL: w.cluster.URL, Token: fakecluster.Token,
			Header: http.Header{"Forkd-Node": {name}}})
	}
	all, err := client.New(client.Options{URL: w.cluster.URL, Token: fakecluster.Token})
	if err != nil {
		t.Fatal(err)
	}
	k := &core{Client: api, live: api, fleet: fleet.New(all), log: slog.New(slog.DiscardHandler),
		cfg: Config{Nodes: w.cluster.Set, Node: at, Every: time.Second}}
	k.snapshots = &snapshots{core: k, known: map[types.NamespacedName]resolved{}}
	if _, err := k.fleet.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.snapshotObjects = newSnapshotObjects(k)
	t.Cleanup(w.copies.Close)
	return w
}

// reconcile works on the object once, and reads it. It reports false without an object.
func (w *copied) reconcile() bool {
	w.t.Helper()
	key := kube.ObjectKeyFromObject(w.object)
	if _, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		w.t.Fatal(err)
	}
	err := w.Get(w.t.Context(), key, w.object)
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err == nil
}

// until reconciles until the condition has a reason.
func (w *copied) until(reason string, ready int32) {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		w.reconcile()
		c := meta.FindStatusCondition(w.object.Status.Conditions, forkdkinds.Distributed)
		if c != nil && c.Reason == reason && w.object.Status.ReadyNodes == ready {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("the status is %+v, want %s with %d nodes", w.object.Status, reason, ready)
		}
		time.Sleep(20 * time.Millisecond) // elapses: nodes and polls have their own pace
	}
}

func (w *copied) holders() (n int) {
	w.t.Helper()
	for _, node := range w.cluster.Nodes {
		if _, err := node.Daemon.Engine.SnapshotBrief(tagOf(w.object)); err == nil {
			n++
		}
	}
	return n
}

func TestADistributionWritesOncePerChange(t *testing.T) {
	w := newCopied(t, 4, agents.Delete, &forkdkinds.SnapshotDistribution{MinNodes: 4})
	w.until("Distributed", 4)
	// The beginning of copies, and the end of each. Two ends may be seen at once.
	if w.writes > 1+2*3 || w.holders() != 4 {
		t.Errorf("%d writes for %d holders", w.writes, w.holders())
	}
	before := w.writes
	for range 50 {
		w.reconcile()
	}
	if w.writes != before {
		t.Errorf("%d writes without a change", w.writes-before)
	}
	info, err := w.cluster.Nodes[3].Daemon.Engine.SnapshotInfo(t.Context(), tagOf(w.object))
	if err != nil || info.Labels[fleet.LabelUID] != "u" {
		t.Errorf("the copy has the labels %v, %v", info.Labels, err)
	}
}

func TestTheEndOfADistributedSnapshot(t *testing.T) {
	for policy, want := range map[string]int{agents.Delete: 0, agents.Retain: 3} {
		w := newCopied(t, 3, policy, &forkdkinds.SnapshotDistribution{MinNodes: 3})
		w.until("Distributed", 3)
		if err := w.Delete(t.Context(), w.object); err != nil {
			t.Fatal(err)
		}
		if w.reconcile() || w.holders() != want {
			t.Errorf("%s: %d nodes have the snapshot, want %d", policy, w.holders(), want)
		}
	}
}

// A copy that runs when the object is deleted ends first, so that it leaves no snapshot.
func TestTheEndStopsCopies(t *testing.T) {
	w := newCopied(t, 2, agents.Delete, &forkdkinds.SnapshotDistribution{MinNodes: 2})
	begun, gone := make(chan struct{}), make(chan struct{})
	w.cluster.Nodes[1].Link.Hook(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if !strings.HasSuffix(r.URL.Path, "/copy") {
			pass.ServeHTTP(rw, r)
			return
		}
		close(begun)
		for r.Context().Err() == nil {
			if _, err := r.Body.Read(make([]byte, 64)); err != nil {
				<-r.Context().Done()
			}
		}
		close(gone)
	})
	w.until("Copying", 1)
	<-begun
	if err := w.Delete(t.Context(), w.object); err != nil {
		t.Fatal(err)
	}
	for w.reconcile() {
		time.Sleep(10 * time.Millisecond) // elapses: the copy ends
	}
	<-gone
	if w.holders() != 0 {
		t.Errorf("%d nodes have the snapshot", w.holders())
	}
}

func TestADistributionNeedsAListOfNodes(t *testing.T) {
	s := &forkdkinds.SandboxSnapshot{Spec: forkdkinds.SandboxSnapshotSpec{
		Distribution: &forkdkinds.SnapshotDistribution{MinNodes: 2}}}
	res := newSnapshotObjects(&core{}).distribute(t.Context(), s)
	if c := meta.FindStatusCondition(s.Status.Conditions, forkdkinds.Distributed); c == nil || c.Reason != "TooFewNodes" ||
		res.RequeueAfter != 0 {
		t.Errorf("%+v, %v", c, res)
	}
}

func TestFieldsForPushesAreRefusedByName(t *testing.T) {
	s := &forkdkinds.SandboxSnapshot{}
	for _, tt := range []struct {
		d    *forkdkinds.SnapshotDistribution
		want string
	}{
		{nil, ""},
		{&forkdkinds.SnapshotDistribution{Repository: "host/x", SecretRef: &forkdkinds.SecretReference{Name: "a"}},
			"distribution.repository "},
		{&forkdkinds.SnapshotDistribution{SecretRef: &forkdkinds.SecretReference{Name: "a"}}, "distribution.secretRef "},
		{&forkdkinds.SnapshotDistribution{MinNodes: 1}, ""},
	} {
		s.Spec.Distribution = tt.d
		refusePush(s)
		c := meta.FindStatusCondition(s.Status.Conditions, forkdkinds.Published)
		if (c != nil) != (tt.want != "") ||
			c != nil && (c.Status != metav1.ConditionFalse || !strings.HasPrefix(c.Message, tt.want)) {
			t.Errorf("%+v: %+v", tt.d, c)
		}
	}
}

func TestNodesAreSelectedByLabels(t *testing.T) {
	node := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone, "disk": "x"}}}
	}
	r := newSnapshotObjects(&core{Client: reader(t, node("a", "1"), node("b", "2"), node("c", "1"))})
	for want, labels := range map[string]map[string]string{
		"map[]": nil, "map[a:true c:true]": {"zone": "1"}, "map[b:true]": {"zone": "2", "disk": "x"}} {
		got, err := r.selected(t.Context(), labels)
		if err != nil || fmt.Sprint(got) != want || (got == nil) != (labels == nil) {
			t.Errorf("%v: %v, %v", labels, got, err)
		}
	}
	r.Client = interceptor.NewClient(reader(t).(kube.WithWatch), interceptor.Funcs{
		List: func(context.Context, kube.WithWatch, kube.ObjectList, ...kube.ListOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
		}})
	if _, err := r.selected(t.Context(), map[string]string{"a": "b"}); err == nil || !strings.Contains(err.Error(), "rights") {
		t.Error(err)
	}
}
