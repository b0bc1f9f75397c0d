package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/kube/blueprint"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/kube/operator"
	"github.com/forkd/forkd/internal/testing/fakecluster"
	"github.com/forkd/forkd/internal/testing/kubebench"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

const tag = "py"

// world is a control plane, a cluster of nodes, and an operator.
type world struct {
	t       *testing.T
	site    site
	plane   *kubebench.Plane
	cluster *fakecluster.Cluster
	kube    kube.Client
	forkd   *client.Client
	stopOp  func()
}

// start starts a world with n nodes. Each has the snapshot tag.
func (s site) start(t *testing.T, n int, users ...string) *world {
	t.Helper()
	kvmtest.Soak(t)
	crlog.SetLogger(logr.Discard())
	w := &world{t: t, site: s, plane: kubebench.Start(t, users...), cluster: s.cluster(t, n)}
	conf := w.plane.REST(kubebench.Token)
	crds, err := filepath.Abs("../../packaging/kubernetes/crds")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := envtest.InstallCRDs(conf, envtest.CRDInstallOptions{Paths: []string{crds}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	w.kube = connect(t, conf)
	for _, list := range []kube.ObjectList{&agents.SandboxList{}, &extensions.SandboxTemplateList{}, &extensions.SandboxWarmPoolList{},
		&extensions.SandboxClaimList{}, &forkdkinds.SandboxForkList{}, &forkdkinds.SandboxSnapshotList{}, &forkdkinds.ForkdNodeList{}} {
		var err error
		w.within(30*time.Second, func() string { return fmt.Sprintf("%T is served: %v", list, err) }, func() bool {
			err = w.kube.List(t.Context(), list)
			return err == nil
		})
	}
	w.forkd = w.client("")
	for _, ns := range []string{"forkd-system", "team-a", "team-b"} {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	return w
}

// connect returns a client that knows all objects of the tests.
func connect(t *testing.T, conf *rest.Config) kube.Client {
	t.Helper()
	scheme, err := operator.Scheme()
	if err == nil {
		err = errors.Join(corev1.AddToScheme(scheme), rbac.AddToScheme(scheme), apps.AddToScheme(scheme))
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.New(conf, kube.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *world) client(node string) *client.Client {
	w.t.Helper()
	opt := client.Options{URL: w.cluster.URL, Token: fakecluster.Token}
	if node != "" {
		opt.Header = http.Header{"Forkd-Node": {node}}
	}
	c, err := client.New(opt)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// operate starts an operator in this process, and returns the function that ends it.
func (w *world) operate(change func(*operator.Config)) {
	w.t.Helper()
	c := operator.Config{REST: w.plane.REST(kubebench.Token), Forkd: w.client(""), Nodes: w.cluster.Set, Namespace: "forkd-system",
		Node:  func(name string) (*client.Client, error) { return w.client(name), nil },
		Every: time.Second, LeaseDuration: 4 * time.Second,
		Log: slog.New(slog.NewTextHandler(lines{w.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if change != nil {
		change(&c)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(ctx, c) }()
	w.stopOp = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Errorf("the operator ended: %v", err)
		}
	})
	w.t.Cleanup(w.stopOp)
}

// lines writes to a test's log, unless the test has ended.
type lines struct{ t *testing.T }

func (l lines) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

func (w *world) create(o kube.Object) {
	w.t.Helper()
	if err := w.kube.Create(w.t.Context(), o); err != nil {
		w.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

func (w *world) delete(o kube.Object) {
	w.t.Helper()
	if err := w.kube.Delete(w.t.Context(), o); err != nil {
		w.t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// change patches an object.
func (w *world) change(o kube.Object, with func()) {
	w.t.Helper()
	before := o.DeepCopyObject().(kube.Object)
	with()
	if err := w.kube.Patch(w.t.Context(), o, kube.MergeFrom(before)); err != nil {
		w.t.Fatalf("patch %T %s: %v", o, o.GetName(), err)
	}
}

// await reads an object until it is as wanted.
func await[O kube.Object](w *world, o O, what string, ok func() bool) O {
	w.t.Helper()
	w.within(30*time.Second, func() string {
		b, _ := json.Marshal(o)
		return what + ", is " + string(b)
	}, func() bool {
		err := w.kube.Get(w.t.Context(), kube.ObjectKeyFromObject(o), o)
		return err == nil && ok()
	})
	return o
}

// gone waits until an object does not exist.
func (w *world) gone(o kube.Object) {
	w.t.Helper()
	w.within(30*time.Second, func() string { return fmt.Sprintf("no %T %s", o, o.GetName()) }, func() bool {
		return apierrors.IsNotFound(w.kube.Get(w.t.Context(), kube.ObjectKeyFromObject(o), o))
	})
}

func (w *world) within(d time.Duration, what func() string, ok func() bool) {
	w.t.Helper()
	for until := time.Now().Add(w.site.slow(d)); !ok(); {
		if time.Now().After(until) {
			w.t.Fatalf("not within %s: %s", w.site.slow(d), what())
		}
		time.Sleep(20 * time.Millisecond) // elapses: the operator has its own pace
	}
}

// sandboxes waits until the nodes have n sandboxes in all.
func (w *world) sandboxes(n int) []api.SandboxInfo {
	w.t.Helper()
	var list []api.SandboxInfo
	w.within(30*time.Second, func() string { return fmt.Sprintf("%d sandboxes, are %d", n, len(list)) }, func() bool {
		var err error
		list, err = w.forkd.ListSandboxes(w.t.Context())
		return err == nil && len(list) == n
	})
	return list
}

// pool makes a template and a pool of it.
func (w *world) pool(ns, name string, replicas int32, change func(*extensions.SandboxTemplate)) {
	w.t.Helper()
	t := &extensions.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name,
		Annotations: map[string]string{blueprint.AnnotationSnapshot: tag}},
		Spec: extensions.SandboxTemplateSpec{Blueprint: agents.Blueprint{PodTemplate: podTemplate(`{"containers":[{"name":"main","env":[{"name":"FROM","value":"template"}]}]}`)},
			EnvVarsInjectionPolicy: extensions.EnvAllowed}}
	if change != nil {
		change(t)
	}
	w.create(t)
	w.create(&extensions.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: extensions.SandboxWarmPoolSpec{Replicas: replicas, TemplateRef: extensions.Ref{Name: name}}})
}

func podTemplate(spec string) agents.PodTemplate {
	return agents.PodTemplate{Spec: runtime.RawExtension{Raw: []byte(spec)}}
}

func newClaim(ns, name, pool string) *extensions.SandboxClaim {
	return &extensions.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: extensions.SandboxClaimSpec{WarmPoolRef: extensions.Ref{Name: pool}}}
}

// ready waits until a claim is ready.
func (w *world) ready(c *extensions.SandboxClaim) *extensions.SandboxClaim {
	w.t.Helper()
	return await(w, c, "the claim is ready", func() bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, agents.Ready)
	})
}

// reason waits until a condition Ready is false with a reason, and returns its message.
func reason(list *[]metav1.Condition, want string, message *string) func() bool {
	return func() bool {
		s := meta.FindStatusCondition(*list, agents.Ready)
		if s == nil || s.Status != metav1.ConditionFalse || s.Reason != want {
			return false
		}
		if message != nil {
			*message = s.Message
		}
		return true
	}
}

func (w *world) exec(id string, args ...string) string {
	w.t.Helper()
	out, err := w.forkd.Exec(w.t.Context(), id, api.ExecRequest{Args: args})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.Stdout
}

// others are writes of the control plane itself, and of ForkdNodes, which have their own pace.
var others = []string{"/serviceaccounts ", "/apiServerPeerIPInfo ", "forkd.dev/forkdnodes "}

// writes returns the API server's writes to etcd during f, Events included, without Leases and the others.
func (w *world) writes(f func()) map[string]int {
	w.t.Helper()
	before := w.count()
	f()
	after := w.count()
	for k, n := range before {
		after[k] -= n
	}
	maps.DeleteFunc(after, func(k string, n int) bool {
		return n == 0 || slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(k, other) })
	})
	return after
}

func (w *world) count() map[string]int {
	w.t.Helper()
	all, err := w.plane.Writes(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func sum(all map[string]int) (n int) {
	for _, v := range all {
		n += v
	}
	return n
}

// owned returns the ids of sandboxes by the UID of their owner.
func owned(list []api.SandboxInfo) map[string][]string {
	out := map[string][]string{}
	for _, sb := range list {
		out[sb.Labels[fleet.LabelUID]] = append(out[sb.Labels[fleet.LabelUID]], sb.ID)
	}
	return out
}
