package kube

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forkd/forkd/internal/images/artifacts"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
	"github.com/forkd/forkd/internal/kube/operator"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// forged is a digest for which the registry has other content.
const forged = "sha256:00000000000000000000000000000000000000000000000000000000000000ff"

// store starts a registry. Repositories below private/ have a password.
func store(t *testing.T) (host string) {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch private := strings.HasPrefix(r.URL.Path, "/v2/private/"); {
		case private && user+":"+password != "ann:secret":
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, forged):
			fmt.Fprint(w, `{"schemaVersion":2}`)
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// published copies the nodes' snapshot into a repository, and returns the reference with its digest.
func (w *world) published(host, repository string) string {
	w.t.Helper()
	send := func(method, url string, body io.Reader, header http.Header) []byte {
		r, err := http.NewRequestWithContext(w.t.Context(), method, url, body)
		if err != nil {
			w.t.Fatal(err)
		}
		r.Header = header
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			w.t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 300 {
			w.t.Fatalf("%s %s: %s %s, %v", method, url, resp.Status, b, err)
		}
		return b
	}
	from := w.cluster.URL + "/v1/snapshots/" + tag + "/artifact"
	token := http.Header{"Authorization": {"Bearer " + fakecluster.Token}, "Forkd-Node": {"node-a"}}
	to, login := "http://"+host+"/v2/"+repository, http.Header{"Authorization": {"Basic YW5uOnNlY3JldA=="}}
	raw := send(http.MethodGet, from, nil, token)
	a, err := hub.ParseArtifact(raw)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, d := range a.Blobs() {
		send(http.MethodPost, to+"/blobs/uploads/?digest="+d.Digest, bytes.NewReader(send(http.MethodGet, from+"/"+d.Digest, nil, token)), login)
	}
	login.Set("Content-Type", hub.ManifestType)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(raw))
	send(http.MethodPut, to+"/manifests/"+digest, bytes.NewReader(raw), login)
	return host + "/" + repository + "@" + digest
}

func snapshotsComeFromARegistry(t *testing.T, s site) {
	w := s.start(t, 2)
	host := store(t)
	w.operate(func(c *operator.Config) {
		p := artifacts.New(artifacts.Config{Allow: []string{host, "127.0.0.1:1"}, Dir: t.TempDir(), Wait: 10 * time.Millisecond})
		c.Artifact = func(ctx context.Context, ref string, login []byte) (operator.Artifact, error) {
			return p.Open(ctx, ref, login)
		}
	})
	public, private := w.published(host, "public/py"), w.published(host, "private/py")
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "login"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"auth":"YW5uOnNlY3JldA=="}}}`, host)}})
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "other"}, Data: map[string][]byte{"a": []byte("b")}})
	of := func(ns, name, ref, secret string) *forkdkinds.SandboxSnapshot {
		t.Helper()
		o := &forkdkinds.SandboxSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: forkdkinds.SandboxSnapshotSpec{Source: forkdkinds.SnapshotSource{Artifact: &forkdkinds.ArtifactSource{Ref: ref}}}}
		if secret != "" {
			o.Spec.Source.Artifact.SecretRef = &forkdkinds.SecretReference{Name: secret}
		}
		w.create(o)
		return o
	}
	var all []*forkdkinds.SandboxSnapshot
	for name, ref := range map[string]string{"public": public, "private": private} {
		secret := ""
		if name == "private" {
			secret = "login"
		}
		o := of("team-a", name, ref, secret)
		await(w, o, "the snapshot is ready", func() bool { return meta.IsStatusConditionTrue(o.Status.Conditions, agents.Ready) })
		if o.Status.ArtifactDigest != ref[strings.Index(ref, "@")+1:] || o.Status.Shape == nil || o.Status.Shape.MemoryMiB == 0 {
			t.Errorf("the status of %s is %+v", name, o.Status)
		}
		f := newFork("team-a", name, 4, forkdkinds.ForkSource{Snapshot: name})
		w.create(f)
		complete(w, f)
		if f.Status.Ready != 4 {
			t.Errorf("a fork of %s: %+v", name, f.Status)
		}
		foreign := newFork("team-b", name, 1, forkdkinds.ForkSource{Snapshot: o.Status.Tag})
		w.create(foreign)
		await(w, foreign, "another namespace cannot fork it", reason(&foreign.Status.Conditions, agents.DependenciesNotReady, nil))
		w.delete(f)
		w.gone(f)
		all = append(all, o)
	}
	repository, _, _ := strings.Cut(public, "@")
	for name, tt := range map[string]struct{ ns, ref, secret, reason, text string }{
		"tag":         {"team-a", repository + ":v1", "", agents.InvalidConfiguration, "@sha256:DIGEST"},
		"digest":      {"team-a", repository + "@sha256:" + strings.Repeat("0", 64), "", "ArtifactNotFound", "not found"},
		"forged":      {"team-a", repository + "@" + forged, "", agents.InvalidConfiguration, "digest"},
		"unreachable": {"team-a", "127.0.0.1:1/py@" + forged, "", "PullFailed", "127.0.0.1:1"},
		"elsewhere":   {"team-a", "registry.example.com/py@" + forged, "", "RegistryNotAllowed", "registry.example.com"},
		"no-login":    {"team-a", private, "", "PullFailed", "denied"},
		"foreign":     {"team-b", private, "login", "SecretNotFound", "team-b"},
		"no-secret":   {"team-a", private, "other", agents.InvalidConfiguration, "kubernetes.io/dockerconfigjson"},
	} {
		o := of(tt.ns, name, tt.ref, tt.secret)
		var text string
		await(w, o, name+": Ready is false with "+tt.reason, reason(&o.Status.Conditions, tt.reason, &text))
		if !strings.Contains(text, tt.text) || strings.Contains(text, "YW5u") {
			t.Errorf("%s: the message is %q, want %q in it", name, text, tt.text)
		}
		all = append(all, o)
	}
	for _, o := range all {
		w.delete(o)
		w.gone(o)
	}
	w.sandboxes(0)
	if list, err := w.forkd.ListSnapshots(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("snapshots are left: %v, %v", list, err)
	}
}
