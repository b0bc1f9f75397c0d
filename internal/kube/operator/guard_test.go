package operator

import (
	"errors"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/forkd/forkd/internal/kube/blueprint"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
)

// reader returns a fake API server with objects.
func reader(t *testing.T, objects ...kube.Object) kube.Client {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&coordination.Lease{}, "metadata.name",
			func(o kube.Object) []string { return []string{o.GetName()} }).Build()
}

func TestOnlyAFreshLeaseOfAgentSandboxCounts(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		lease, holder string
		age           time.Duration
		refused       bool
	}{
		"fresh":         {upstreamLease, "a", time.Second, true},
		"just expired":  {upstreamLease, "a", 18 * time.Second, true},
		"old":           {upstreamLease, "a", time.Minute, false},
		"released":      {upstreamLease, "", time.Second, false},
		"another Lease": {"other", "a", time.Second, false},
	} {
		renewed, lasts := metav1.NewMicroTime(now.Add(-tt.age)), int32(15)
		l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: tt.lease},
			Spec: coordination.LeaseSpec{HolderIdentity: &tt.holder, RenewTime: &renewed, LeaseDurationSeconds: &lasts}}
		err := upstream(t.Context(), reader(t, l), now)
		if refused := errors.As(err, new(*UpstreamError)); refused != tt.refused || err != nil && !refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheEnvironmentOfAClaimFollowsTheTemplatesPolicy(t *testing.T) {
	p := blueprint.Plan{Container: "main", Env: map[string]string{"A": "template"}}
	for name, tt := range map[string]struct {
		policy, container, variable, want string
		fails                             bool
	}{
		"no policy":             {"", "", "B", "", true},
		"disallowed":            {extensions.EnvDisallowed, "", "B", "", true},
		"allowed":               {extensions.EnvAllowed, "", "B", "claim", false},
		"of the container":      {extensions.EnvAllowed, "main", "B", "claim", false},
		"of another container":  {extensions.EnvAllowed, "other", "B", "", true},
		"a variable twice":      {extensions.EnvAllowed, "", "A", "", true},
		"overridden":            {extensions.EnvOverrides, "", "A", "claim", false},
		"no name of a variable": {extensions.EnvOverrides, "", "A=B", "", true},
	} {
		c := &extensions.SandboxClaim{Spec: extensions.SandboxClaimSpec{Env: []extensions.EnvVar{
			{Name: tt.variable, Value: "claim", ContainerName: tt.container}}}}
		tpl := &extensions.SandboxTemplate{Spec: extensions.SandboxTemplateSpec{EnvVarsInjectionPolicy: tt.policy}}
		env, err := envOf(c, tpl, p)
		if (err != nil) != tt.fails || env[tt.variable] != tt.want && !tt.fails {
			t.Errorf("%s: %v, %v", name, env, err)
		}
	}
	if p.Env["A"] != "template" {
		t.Error("the template's environment has changed")
	}
}

func TestASandboxIsWantedByOneObjectOnly(t *testing.T) {
	meta := func(name, uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("uid-" + uid)}
	}
	fresh, bound := &extensions.SandboxClaim{ObjectMeta: meta("fresh", "1")},
		&extensions.SandboxClaim{ObjectMeta: meta("bound", "2")}
	bound.Status.Sandbox.Name = "sb-1"
	direct := &agents.Sandbox{ObjectMeta: meta("direct", "3"), Status: agents.SandboxStatus{SandboxID: "sb-1"}}
	fork := &forkdkinds.SandboxFork{ObjectMeta: meta("fork", "4"), Status: forkdkinds.SandboxForkStatus{
		Children: []forkdkinds.ForkChild{{ID: "sb-1"}}}}
	set(&fork.Status.Conditions, 1, forkdkinds.Complete, true, "Made", "")
	s := &sweeper{core: &core{}}
	r := reader(t, fresh, bound, direct, fork)
	for name, tt := range map[string]struct {
		kind, name, uid, id string
		want                bool
	}{
		"a claim without a sandbox":  {kindClaim, "fresh", "uid-1", "sb-9", true},
		"a claim's sandbox":          {kindClaim, "bound", "uid-2", "sb-1", true},
		"a claim's second sandbox":   {kindClaim, "bound", "uid-2", "sb-2", false},
		"a claim made again":         {kindClaim, "bound", "uid-9", "sb-1", false},
		"a deleted claim":            {kindClaim, "gone", "uid-8", "sb-1", false},
		"a Sandbox's sandbox":        {kindSandbox, "direct", "uid-3", "sb-1", true},
		"a Sandbox's second sandbox": {kindSandbox, "direct", "uid-3", "sb-2", false},
		"a child":                    {kindFork, "fork", "uid-4", "sb-1", true},
		"a child too many":           {kindFork, "fork", "uid-4", "sb-2", false},
		"another kind":               {"Job", "x", "uid-5", "sb-1", true},
	} {
		got, err := s.wanted(t.Context(), r, fleet.Owner{Kind: tt.kind, Namespace: "n", Name: tt.name, UID: tt.uid}, tt.id)
		if err != nil || got != tt.want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, tt.want)
		}
	}
}
