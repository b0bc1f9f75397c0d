package kube

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/tlscert"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/testing/kubebench"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/testing/procnode"
)

const (
	chart      = "../../packaging/helm/forkd"
	release    = "forkd" // also its namespace
	repository = "ghcr.io/forkd/forkd:"
	oldVersion = "0.0.9"
	newVersion = "0.1.0"
)

// installed is a cluster in which Helm has installed the chart.
type installed struct {
	*world
	helmDir, kubeconfig string
}

// TestTheChart installs the chart with Helm. The control plane makes its pods, and procnode runs them: gateway, operator
// and device plugin are the real programs, with the chart's ServiceAccounts, Secrets and rights. The nodes' daemons have
// fake engines.
func TestTheChart(t *testing.T) {
	kvmtest.Soak(t)
	if !procnode.Isolate(t) {
		return
	}
	crlog.SetLogger(logr.Discard())
	plane := kubebench.StartWithPods(t)
	conf := plane.REST(kubebench.Token)
	programs := images(t)
	w := &installed{world: &world{t: t, plane: plane, kube: connect(t, conf)}, kubeconfig: plane.Kubeconfig(t, kubebench.Token), helmDir: t.TempDir()}
	sandboxed := map[string]string{"forkd.dev/node": "true"}
	procnode.Start(t, procnode.Config{REST: conf, Devices: []string{"kvm"},
		Nodes: map[string]map[string]string{"node-a": sandboxed, "node-b": sandboxed, "node-c": nil},
		Image: func(image string) (string, error) {
			if image != repository+oldVersion && image != repository+newVersion {
				return "", fmt.Errorf("there is no image %s", image)
			}
			return programs, nil
		}})
	for _, ns := range []string{"team-a", "strict"} {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}

	w.helm("install", release, w.version(oldVersion), "-n", release, "--create-namespace", "--wait", "--timeout=4m", "--set=gateway.replicas=1")
	w.everyObjectIsAccepted()
	w.forkd = w.gateway()
	t.Log(w.helm("test", release, "-n", release, "--timeout=2m"))
	w.rightsEnd()
	w.podsAre("node", oldVersion, 2)
	w.pool("team-a", "pool", 2, nil)
	before := w.claims("before", 6)
	fork := newFork("team-a", "fork", 10, forkdkinds.ForkSource{Snapshot: tag})
	w.world.create(fork)
	complete(w.world, fork)
	w.spread(w.sandboxes(16))

	// The previous version is replaced while its sandboxes run and clients use them.
	secrets := w.secrets()
	end := w.use(before)
	w.helm("upgrade", release, chart, "-n", release, "--reuse-values", "--set=gateway.replicas=2",
		"--set=operator.artifactRegistries={127.0.0.1:1}") // --wait would wait for nodes
	w.within(2*time.Minute, func() string { return "gateway and operator have the new version: " + w.states() }, func() bool {
		return len(w.pods("gateway")) == 2 && w.of("gateway", newVersion) == 2 && len(w.pods("operator")) == 2 && w.of("operator", newVersion) == 2
	})
	w.podsAre("gateway", newVersion, 2)
	w.podsAre("operator", newVersion, 2)
	w.podsAre("node", oldVersion, 2) // OnDelete
	during := w.claims("during", 2)
	end()
	for name, text := range w.secrets() {
		if secrets[name] != text {
			t.Errorf("the upgrade has changed the Secret %s", name)
		}
	}
	for _, c := range append(before, during...) {
		w.ready(c)
		if out := w.exec(c.Status.Sandbox.Name, "echo", "here"); !strings.Contains(out, "here") {
			t.Errorf("after the upgrade %s answers %q", c.Name, out)
		}
	}
	w.sandboxes(18)

	w.secretsAreGivenByRoles()

	// The new version reaches a node when its pod is deleted.
	list := w.podsAre("node", oldVersion, 2)
	w.delete(&list[0])
	w.within(2*time.Minute, func() string { return "one node has the new version" }, func() bool {
		return w.of("node", newVersion) == 1 && w.of("node", oldVersion) == 1
	})
	for _, c := range before {
		if vm, err := w.forkd.Sandbox(t.Context(), c.Status.Sandbox.Name); err == nil && vm.Node == list[0].Spec.NodeName {
			t.Errorf("sandbox %s of the replaced node is %s", vm.ID, vm.Status)
		}
	}
	w.claims("after", 2)

	w.helm("uninstall", release, "-n", release, "--wait", "--timeout=4m")
	w.within(2*time.Minute, func() string { return "no pods after helm uninstall: " + w.states() }, func() bool {
		var pods corev1.PodList
		return w.kube.List(t.Context(), &pods, kube.InNamespace(release)) == nil && len(pods.Items) == 0
	})
	if err := w.kube.Get(t.Context(), kube.ObjectKeyFromObject(before[0]), before[0]); err != nil {
		t.Errorf("helm uninstall has removed a claim: %v", err)
	}
}

// images makes the folder of programs of all images.
func images(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "forkd"), "./chartnode")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the fake daemon: %v\n%s", err, out)
	}
	for from, to := range map[string]string{"forkd": "forkd-cli", "forkd-kube": "forkd-kube"} {
		text, err := os.ReadFile(filepath.Join("../../bin", from))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o755) // #nosec G306 -- a program
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { // #nosec G302 -- containers' users read it
		t.Fatal(err)
	}
	return dir
}

// helm runs Helm, and returns its output.
func (w *installed) helm(args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), filepath.Join(kubebench.Programs(), "helm"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig, "HELM_CACHE_HOME="+w.helmDir, "HELM_CONFIG_HOME="+w.helmDir, "HELM_DATA_HOME="+w.helmDir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("helm %s: %v\n%s\n%s", args[0], err, out, w.states())
	}
	return string(out)
}

// states describes the pods.
func (w *installed) states() string {
	var pods corev1.PodList
	if err := w.kube.List(context.Background(), &pods); err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, p := range pods.Items {
		fmt.Fprintf(&b, "%s/%s on %s: %s %+v\n", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.ContainerStatuses)
		for _, c := range p.Status.Conditions {
			if c.Status != corev1.ConditionTrue {
				fmt.Fprintf(&b, "  %s %s %s\n", c.Type, c.Reason, c.Message)
			}
		}
	}
	return b.String()
}

// version returns the chart with another version.
func (w *installed) version(v string) string {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "forkd")
	if err := os.CopyFS(dir, os.DirFS(chart)); err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(dir, "Chart.yaml")
	text, err := os.ReadFile(path)
	if err == nil {
		if !strings.Contains(string(text), "ersion: "+newVersion+"\n") {
			w.t.Fatalf("the chart's version is not %s", newVersion)
		}
		err = os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "ersion: "+newVersion+"\n", "ersion: "+v+"\n")), 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// everyObjectIsAccepted sends the objects of the chart to the API server, which refuses unknown fields.
func (w *installed) everyObjectIsAccepted() {
	w.t.Helper()
	total := 0
	for name, values := range map[string][]string{
		"default": {"--include-crds"},
		"others": {"--set=node.privileged=true,node.drain=none,node.updateStrategy=RollingUpdate,node.peers.enabled=false",
			"--set=operator.artifactRegistries={registry.example.com},operator.registryCA=roots",
			"--set=gateway.tls=off,gateway.service.type=NodePort,image.digest=sha256:" + strings.Repeat("a", 64)},
		"none": {"--set=node.jail=off,operator.enabled=false,devicePlugin.enabled=false,networkPolicy.enabled=false"},
	} {
		text := w.helm(append([]string{"template", "other", chart, "-n", "strict"}, values...)...)
		d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
		for {
			o := &unstructured.Unstructured{}
			if err := d.Decode(o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				w.t.Fatal(err)
			}
			if o.Object == nil {
				continue
			}
			total++
			if k := o.GetKind(); !strings.HasPrefix(k, "Cluster") && k != "CustomResourceDefinition" {
				o.SetNamespace("strict")
			}
			err := w.strict(o)
			switch {
			case name == "others" && o.GetKind() == "DaemonSet" && strings.HasSuffix(o.GetName(), "-node"):
				// Pods are checked later, so even an API server without privileged pods takes the DaemonSet or names the field.
				if err != nil && !strings.Contains(err.Error(), "privileged") {
					w.t.Errorf("%s: %v", name, err)
				}
			case err != nil && !(o.GetKind() == "CustomResourceDefinition" && apierrors.IsAlreadyExists(err)):
				w.t.Errorf("%s: the API server refuses %s %s: %v", name, o.GetKind(), o.GetName(), err)
			}
			if o.GetKind() == "ServiceAccount" {
				o.Object["automount"] = true
				if err := w.strict(o); err == nil || !strings.Contains(err.Error(), "unknown field") {
					w.t.Errorf("an unknown field: %v", err)
				}
			}
		}
	}
	if total < 40 {
		w.t.Errorf("only %d objects were checked", total)
	}
}

func (w *installed) strict(o *unstructured.Unstructured) error {
	return w.kube.Create(w.t.Context(), o.DeepCopy(), kube.DryRunAll, kube.FieldValidation(metav1.FieldValidationStrict))
}

// gateway returns a client of the gateway's Service, with the token that the chart has made.
func (w *installed) gateway() *client.Client {
	w.t.Helper()
	var service corev1.Service
	var auth, cert corev1.Secret
	for name, o := range map[string]kube.Object{"forkd-gateway": &service, "forkd-auth": &auth, "forkd-gateway-tls": &cert} {
		if err := w.kube.Get(w.t.Context(), kube.ObjectKey{Namespace: release, Name: name}, o); err != nil {
			w.t.Fatal(err)
		}
	}
	block, _ := pem.Decode(cert.Data["tls.crt"])
	c, err := client.New(client.Options{URL: "https://" + service.Spec.ClusterIP + ":8890", Token: string(auth.Data["token"]),
		Fingerprint: tlscert.Fingerprint(block.Bytes)})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// rightsEnd checks that the operator and the gateway cannot read what they do not need.
func (w *installed) rightsEnd() {
	w.t.Helper()
	for _, account := range []string{"forkd-operator", "forkd-gateway"} {
		conf := rest.CopyConfig(w.plane.REST(kubebench.Token))
		conf.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + release + ":" + account,
			Groups: []string{"system:serviceaccounts", "system:authenticated"}}
		c := connect(w.t, conf)
		for _, list := range []kube.ObjectList{&corev1.SecretList{}, &corev1.PodList{}, &apps.DaemonSetList{}} {
			if err := c.List(w.t.Context(), list); !apierrors.IsForbidden(err) {
				w.t.Errorf("%s lists %T: %v", account, list, err)
			}
		}
		for _, list := range []kube.ObjectList{&corev1.NodeList{}, &extensions.SandboxClaimList{}} {
			err := c.List(w.t.Context(), list)
			if want := account == "forkd-gateway"; apierrors.IsForbidden(err) != want {
				w.t.Errorf("%s lists %T: %v", account, list, err)
			}
		}
	}
}

// secretsAreGivenByRoles checks that the operator reads the credentials of a registry only where a Role allows it.
func (w *installed) secretsAreGivenByRoles() {
	w.t.Helper()
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "team-a", Name: name} }
	w.world.create(&corev1.Secret{ObjectMeta: in("login"), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}})
	s := &forkdkinds.SandboxSnapshot{ObjectMeta: in("artifact"), Spec: forkdkinds.SandboxSnapshotSpec{Source: forkdkinds.SnapshotSource{
		Artifact: &forkdkinds.ArtifactSource{Ref: "127.0.0.1:1/py@sha256:" + strings.Repeat("0", 64), SecretRef: &forkdkinds.SecretReference{Name: "login"}}}}}
	w.world.create(s)
	await(w.world, s, "the Secret is forbidden", reason(&s.Status.Conditions, "SecretForbidden", nil))
	w.world.create(&rbac.Role{ObjectMeta: in("login"), Rules: []rbac.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
		ResourceNames: []string{"login"}, Verbs: []string{"get"}}}})
	w.world.create(&rbac.RoleBinding{ObjectMeta: in("login"), RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: "login"},
		Subjects: []rbac.Subject{{Kind: "ServiceAccount", Namespace: release, Name: "forkd-operator"}}})
	w.within(90*time.Second, func() string { return fmt.Sprintf("the registry is asked, is %+v", s.Status.Conditions) }, func() bool {
		return w.kube.Get(w.t.Context(), kube.ObjectKeyFromObject(s), s) == nil && reason(&s.Status.Conditions, "PullFailed", nil)()
	})
	w.delete(s)
	w.gone(s)
}

// pods returns the pods of a part that are ready.
func (w *installed) pods(part string) (ready []corev1.Pod) {
	w.t.Helper()
	var list corev1.PodList
	if err := w.kube.List(w.t.Context(), &list, kube.InNamespace(release), kube.MatchingLabels{"app.kubernetes.io/component": part}); err != nil {
		w.t.Fatal(err)
	}
	for _, p := range list.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
				ready = append(ready, p)
			}
		}
	}
	return ready
}

func (w *installed) of(part, version string) (n int) {
	w.t.Helper()
	for _, p := range w.pods(part) {
		if p.Spec.Containers[0].Image == repository+version {
			n++
		}
	}
	return n
}

// podsAre checks number and version of a part's pods, and that none was restarted.
func (w *installed) podsAre(part, version string, n int) []corev1.Pod {
	w.t.Helper()
	list := w.pods(part)
	if len(list) != n || w.of(part, version) != n {
		w.t.Errorf("%s has %d pods, %d with version %s, want %d\n%s", part, len(list), w.of(part, version), version, n, w.states())
	}
	for _, p := range list {
		if r := p.Status.ContainerStatuses[0].RestartCount; r > 0 {
			w.t.Errorf("%s was restarted %d times", p.Name, r)
		}
	}
	return list
}

// claims makes claims, and waits for their sandboxes.
func (w *installed) claims(name string, n int) (all []*extensions.SandboxClaim) {
	w.t.Helper()
	for i := range n {
		c := newClaim("team-a", fmt.Sprintf("%s-%d", name, i), "pool")
		w.world.create(c)
		all = append(all, w.ready(c))
	}
	return all
}

// spread checks that both nodes have sandboxes.
func (w *installed) spread(list []api.SandboxInfo) {
	w.t.Helper()
	on := map[string]int{}
	for _, sb := range list {
		on[sb.Node]++
	}
	if on["node-a"] == 0 || on["node-b"] == 0 || len(on) != 2 {
		w.t.Errorf("the sandboxes are on %v", on)
	}
}

func (w *installed) secrets() map[string]string {
	w.t.Helper()
	var list corev1.SecretList
	if err := w.kube.List(w.t.Context(), &list, kube.InNamespace(release)); err != nil {
		w.t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range list.Items {
		if !strings.HasPrefix(s.Name, "sh.helm") {
			out[s.Name] = fmt.Sprint(s.Data)
		}
	}
	if len(out) != 4 {
		w.t.Errorf("the chart has the Secrets %d, want 4", len(out))
	}
	return out
}

// use runs programs in the claims' sandboxes until the returned function is called, over a new connection each time. A
// failure is an error.
func (w *installed) use(claims []*extensions.SandboxClaim) (end func()) {
	ctx, stop := context.WithCancel(w.t.Context())
	var work sync.WaitGroup
	var done atomic.Int64
	for _, c := range claims {
		work.Go(func() {
			for ctx.Err() == nil {
				out, err := w.gateway().Exec(context.WithoutCancel(ctx), c.Status.Sandbox.Name, api.ExecRequest{Args: []string{"echo", "here"}})
				if err != nil || !strings.Contains(out.Stdout, "here") {
					w.t.Errorf("during the upgrade %s answers %q, %v", c.Name, out.Stdout, err)
				}
				done.Add(1)
				time.Sleep(100 * time.Millisecond) // elapses: a client's pace
			}
		})
	}
	return func() {
		w.t.Helper()
		stop()
		work.Wait()
		w.t.Logf("%d programs ran during the upgrade", done.Load())
		if done.Load() < 10 {
			w.t.Error("the upgrade was not observed")
		}
	}
}
