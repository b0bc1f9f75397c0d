package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
)

func aClaimHasASandboxUntilItIsDeleted(t *testing.T, s site) {
	w := s.start(t, 3)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	c := newClaim("team-a", "one", "pool")
	c.Spec.Env = []extensions.EnvVar{{Name: "WHO", Value: "claim"}}
	c.Spec.AdditionalPodMetadata = &agents.PodMetadata{Labels: map[string]string{"app": "x", "kube.namespace": "team-b",
		"agents.x-k8s.io/claim-uid": "forged", "forkd.dev/x": "y"}}
	w.create(c)
	w.ready(c)
	vm := w.sandboxes(1)[0]
	if vm.ID != c.Status.Sandbox.Name {
		t.Errorf("the claim names %s, the sandbox is %s", c.Status.Sandbox.Name, vm.ID)
	}
	want := map[string]string{"app": "x", fleet.LabelKind: "SandboxClaim", fleet.LabelNamespace: "team-a", fleet.LabelName: "one",
		fleet.LabelUID: string(c.UID), fleet.LabelSandboxUID: vm.Labels[fleet.LabelSandboxUID]}
	if len(vm.Labels) != len(want) {
		t.Errorf("labels are %v, want %v: reserved ones are dropped", vm.Labels, want)
	}
	for k, v := range want {
		if vm.Labels[k] != v {
			t.Errorf("label %s is %q, want %q", k, vm.Labels[k], v)
		}
	}
	if out := w.exec(vm.ID, "env"); !strings.Contains(out, "WHO=claim") || !strings.Contains(out, "FROM=template") {
		t.Errorf("the environment is %q", out)
	}
	sb := &agents.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: vm.ID}}
	await(w, sb, "the Sandbox names its node", func() bool { return strings.HasPrefix(sb.Status.NodeName, "node-") })
	w.delete(c)
	w.sandboxes(0)
	w.gone(sb)
}

func aClaimIsFourWritesAndNoneMore(t *testing.T, s site) {
	w := s.start(t, 3)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	w.ready(func() *extensions.SandboxClaim { c := newClaim("team-a", "first", "pool"); w.create(c); return c }())
	const n = 20
	var took []time.Duration
	all := w.writes(func() {
		for i := range n {
			c := newClaim("team-a", fmt.Sprintf("c%d", i), "pool")
			began := time.Now()
			w.create(c)
			w.ready(c)
			took = append(took, time.Since(began))
		}
		w.settled("team-a", n+1)
	})
	slices.Sort(took)
	t.Logf("%d claims: %d writes, %.1f per claim: %v; ready after p50 %s, max %s", n, sum(all), float64(sum(all))/n, all,
		took[n/2].Round(time.Millisecond), took[n-1].Round(time.Millisecond))
	if sum(all) > 4*n {
		t.Errorf("%d claims made %d writes, want at most 4 each: %v", n, sum(all), all)
	}
	if len(w.sandboxes(n+1)) != n+1 {
		t.Error("sandboxes are missing")
	}
}

// settled waits until all Sandboxes of a namespace have their status, and for writes that should not come.
func (w *world) settled(ns string, n int) {
	w.t.Helper()
	var list agents.SandboxList
	w.within(30*time.Second, func() string { return "all Sandboxes are ready" }, func() bool {
		if err := w.kube.List(w.t.Context(), &list); err != nil {
			return false
		}
		ready := 0
		for _, sb := range list.Items {
			if sb.Namespace == ns && meta.IsStatusConditionTrue(sb.Status.Conditions, agents.Ready) {
				ready++
			}
		}
		return ready == n
	})
	time.Sleep(3 * time.Second) // elapses: three comparisons with the nodes, which must write nothing
}

func claimsThatCannotBeServedSayWhy(t *testing.T, s site) {
	w := s.start(t, 1)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	w.pool("team-a", "no-env", 0, func(t *extensions.SandboxTemplate) { t.Spec.EnvVarsInjectionPolicy = "" })
	w.pool("team-a", "volumes", 0, func(t *extensions.SandboxTemplate) {
		t.Spec.PodTemplate = podTemplate(`{"volumes":[{"name":"v"}],"hostNetwork":true,"containers":[{"name":"a"},{"name":"b"}]}`)
	})
	w.pool("team-a", "policy", 0, func(t *extensions.SandboxTemplate) {
		raw := podTemplate(`{"egress":[{}]}`).Spec
		t.Spec.NetworkPolicy = &raw
	})
	w.pool("team-a", "size", 0, func(t *extensions.SandboxTemplate) {
		t.Spec.PodTemplate = podTemplate(`{"containers":[{"name":"a","resources":{"limits":{"memory":"7Gi"}}}]}`)
	})
	w.pool("team-a", "unknown", 0, func(t *extensions.SandboxTemplate) { t.Annotations["forkd.dev/snapshot"] = "missing" })
	w.create(&extensions.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "bare"},
		Spec: extensions.SandboxWarmPoolSpec{TemplateRef: extensions.Ref{Name: "missing"}}})
	for name, tt := range map[string]struct {
		pool, reason, text string
		change             func(*extensions.SandboxClaim)
	}{
		"no pool":     {"missing", extensions.WarmPoolNotFound, "missing", nil},
		"no template": {"bare", extensions.TemplateNotFound, "missing", nil},
		"volumes":     {"volumes", agents.InvalidConfiguration, "podTemplate.spec.volumes", nil},
		"containers":  {"volumes", agents.InvalidConfiguration, "podTemplate.spec.containers[1]", nil},
		"policy":      {"policy", agents.InvalidConfiguration, "networkPolicy", nil},
		"size":        {"size", agents.InvalidConfiguration, "limits.memory", nil},
		"snapshot":    {"unknown", agents.DependenciesNotReady, "missing", nil},
		"env":         {"no-env", extensions.EnvVarsInjectionRejected, "envVarsInjectionPolicy", func(c *extensions.SandboxClaim) { c.Spec.Env = []extensions.EnvVar{{Name: "A"}} }},
		"env-again":   {"pool", extensions.EnvVarsInjectionRejected, "FROM", func(c *extensions.SandboxClaim) { c.Spec.Env = []extensions.EnvVar{{Name: "FROM"}} }},
		"env-name":    {"pool", extensions.EnvVarsInjectionRejected, "A=B", func(c *extensions.SandboxClaim) { c.Spec.Env = []extensions.EnvVar{{Name: "A=B"}} }},
		"container": {"pool", extensions.EnvVarsInjectionRejected, "other", func(c *extensions.SandboxClaim) {
			c.Spec.Env = []extensions.EnvVar{{Name: "A", ContainerName: "other"}}
		}},
		"claims": {"pool", extensions.VolumeClaimTemplates, "volumeClaimTemplates", func(c *extensions.SandboxClaim) {
			c.Spec.VolumeClaimTemplates = append(c.Spec.VolumeClaimTemplates, podTemplate(`{"metadata":{"name":"v"}}`).Spec)
		}},
	} {
		c := newClaim("team-a", strings.ReplaceAll(name, " ", "-"), tt.pool)
		if tt.change != nil {
			tt.change(c)
		}
		w.create(c)
		var text string
		await(w, c, "Ready is false with "+tt.reason, reason(&c.Status.Conditions, tt.reason, &text))
		if !strings.Contains(text, tt.text) {
			t.Errorf("%s: the message is %q, want %q in it", name, text, tt.text)
		}
	}
	w.sandboxes(0)
}

func aClaimEndsAtItsTime(t *testing.T, s site) {
	w := s.start(t, 2)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	at := metav1.NewTime(time.Now().Add(s.slow(6 * time.Second)))
	ttl := int32(2)
	kept, dropped, short := newClaim("team-a", "kept", "pool"), newClaim("team-a", "dropped", "pool"), newClaim("team-a", "short", "pool")
	kept.Spec.Lifecycle = &extensions.Lifecycle{ShutdownTime: &at, ShutdownPolicy: agents.Retain}
	dropped.Spec.Lifecycle = &extensions.Lifecycle{ShutdownTime: &at, ShutdownPolicy: extensions.DeleteForeground}
	short.Spec.Lifecycle = &extensions.Lifecycle{ShutdownTime: &at, TTLSecondsAfterFinished: &ttl}
	for _, c := range []*extensions.SandboxClaim{kept, dropped, short} {
		w.create(c)
		w.ready(c)
	}
	for _, vm := range w.sandboxes(3) {
		if vm.Life == nil || vm.Life.DeadlineUnix == nil || *vm.Life.DeadlineUnix > at.Unix()+2 {
			t.Errorf("sandbox %s has the life %+v: it would outlive an operator that is down", vm.ID, vm.Life)
		}
	}
	await(w, kept, "the claim has expired", reason(&kept.Status.Conditions, extensions.ClaimExpired, nil))
	w.gone(dropped)
	w.gone(short)
	w.sandboxes(0)
}

func aSandboxThatEndedIsReported(t *testing.T, s site) {
	w := s.start(t, 2)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	c := newClaim("team-a", "one", "pool")
	w.create(c)
	w.ready(c)
	if err := w.forkd.Kill(t.Context(), c.Status.Sandbox.Name); err != nil {
		t.Fatal(err)
	}
	await(w, c, "the claim reports the end", reason(&c.Status.Conditions, agents.PodFailed, nil))
	if !meta.IsStatusConditionTrue(c.Status.Conditions, agents.Finished) {
		t.Error("the claim has not finished")
	}
	w.sandboxes(0)
}

func aSilentNodesSandboxesAreNotReportedAsEnded(t *testing.T, s site) {
	w := s.start(t, 2)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	var claims []*extensions.SandboxClaim
	for i := range 6 {
		c := newClaim("team-a", fmt.Sprintf("c%d", i), "pool")
		w.create(c)
		claims = append(claims, w.ready(c))
	}
	w.settled("team-a", 6)
	for _, n := range w.cluster.Nodes {
		n.Link.Hook(dead)
	}
	time.Sleep(4 * time.Second) // elapses: comparisons while no node answers
	w.cluster.Nodes[0].Link.Hook(nil)
	time.Sleep(3 * time.Second) // elapses: comparisons while one node is missing in lists
	w.cluster.Nodes[1].Link.Hook(nil)
	w.cluster.Await(t, 2)
	time.Sleep(2 * time.Second) // elapses: comparisons with all nodes
	for _, c := range claims {
		w.ready(c)
	}
	w.sandboxes(6)
}

func suspendKeepsTheSandbox(t *testing.T, s site) {
	w := s.start(t, 2)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	c := newClaim("team-a", "one", "pool")
	w.create(c)
	w.ready(c)
	id := c.Status.Sandbox.Name
	if err := w.forkd.Upload(t.Context(), id, "/tmp/note", "", strings.NewReader("kept")); err != nil {
		t.Fatal(err)
	}
	sb := &agents.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: id}}
	await(w, sb, "the Sandbox is ready", func() bool { return meta.IsStatusConditionTrue(sb.Status.Conditions, agents.Ready) })
	w.change(sb, func() { sb.Spec.OperatingMode = agents.Suspended })
	await(w, sb, "the Sandbox is suspended", func() bool { return meta.IsStatusConditionTrue(sb.Status.Conditions, agents.IsSuspended) })
	await(w, c, "the claim says so", reason(&c.Status.Conditions, agents.SandboxSuspended, nil))
	if vm, err := w.forkd.Sandbox(t.Context(), id); err != nil || vm.Status != api.SandboxPaused {
		t.Fatalf("the sandbox is %+v, %v, want paused", vm.Status, err)
	}
	w.change(sb, func() { sb.Spec.OperatingMode = agents.Running })
	w.ready(c)
	r, err := w.forkd.Download(t.Context(), id, "/tmp/note", "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := make([]byte, 10)
	n, _ := r.Read(b)
	if string(b[:n]) != "kept" {
		t.Errorf("the file is %q", b[:n])
	}
}
