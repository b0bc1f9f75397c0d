package kube

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
	"github.com/forkd/forkd/internal/kube/router"
	"github.com/forkd/forkd/internal/testing/fakecluster"
	"github.com/forkd/forkd/internal/testing/kubebench"
)

// route starts a router in front of the world's gateway. It asks the API server about callers.
func (w *world) route() string {
	w.t.Helper()
	rt, err := rest.TransportFor(w.plane.REST(""))
	if err != nil {
		w.t.Fatal(err)
	}
	k := &router.Kubernetes{URL: w.plane.URL, HTTP: &http.Client{Transport: rt}}
	inside := router.NewInside(w.cluster.Gateway)
	forkd, err := inside.Client(fakecluster.Token)
	if err != nil {
		w.t.Fatal(err)
	}
	go inside.Run()
	s := httptest.NewServer(router.New(router.Config{Gateway: w.cluster.Gateway, Forkd: forkd, Allowed: k.Allowed}))
	w.t.Cleanup(func() {
		s.Close()
		inside.Close()
	})
	return s.URL
}

// member gives a user the rights in a namespace that users of agent-sandbox have.
func (w *world) member(user, ns string) {
	w.t.Helper()
	w.create(&rbac.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: user}, Rules: []rbac.PolicyRule{
		{APIGroups: []string{extensions.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{agents.GroupVersion.Group}, Resources: []string{"sandboxes"}, Verbs: []string{"*"}},
		{APIGroups: []string{agents.GroupVersion.Group}, Resources: []string{"sandboxes/exec"}, Verbs: []string{"create"}},
	}})
	w.create(&rbac.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: user},
		RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: user},
		Subjects: []rbac.Subject{{APIGroup: rbac.GroupName, Kind: "User", Name: user}}})
}

func thePythonClientOfAgentSandbox(t *testing.T, s site) {
	w := s.start(t, 3, "alice")
	w.operate(nil)
	w.pool("team-a", "pool", 2, nil)
	w.pool("team-a", "volumes", 0, func(t *extensions.SandboxTemplate) {
		t.Spec.PodTemplate = podTemplate(`{"volumes":[{"name":"v"}],"containers":[{"name":"a"}]}`)
	})
	w.member("alice", "team-a")
	cmd := exec.CommandContext(t.Context(), filepath.Join(kubebench.Programs(), "sdk/bin/python"), "testdata/sdk.py", w.route(), "alice", "team-a")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.plane.Kubeconfig(t, "alice"))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.HasSuffix(string(out), "done\n") {
		t.Fatalf("the program ended with %v", err)
	}
	w.sandboxes(0)
}

func theRouterServesANamespaceOnly(t *testing.T, s site) {
	w := s.start(t, 2, "alice", "bob")
	w.operate(nil)
	w.member("alice", "team-a")
	w.member("bob", "team-b")
	w.pool("team-a", "pool", 0, nil)
	c := newClaim("team-a", "one", "pool")
	w.create(c)
	w.ready(c)
	named := &agents.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "named", Annotations: map[string]string{"forkd.dev/snapshot": tag}},
		Spec: agents.SandboxSpec{Blueprint: agents.Blueprint{PodTemplate: podTemplate(`{"containers":[{"name":"a"}]}`)}}}
	w.create(named)
	await(w, named, "the Sandbox is made", func() bool { return named.Status.SandboxID != "" })
	sb := &agents.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: c.Status.Sandbox.Name}}
	await(w, sb, "the Sandbox exists", func() bool { return true })
	url, id := w.route(), c.Status.Sandbox.Name
	w.echo(id)
	for name, tt := range map[string]struct {
		token, ns, id string
		more          map[string]string
		status        int
	}{
		"its own claim":             {"alice", "team-a", id, nil, 200},
		"its own Sandbox":           {"alice", "team-a", "named", nil, 200},
		"the id of a named Sandbox": {"alice", "team-a", named.Status.SandboxID, nil, 502},
		"with the UID":              {"alice", "team-a", id, map[string]string{"X-Sandbox-UID": string(sb.UID)}, 200},
		"with another UID":          {"alice", "team-a", id, map[string]string{"X-Sandbox-UID": "7"}, 502},
		"a named one with its UID":  {"alice", "team-a", "named", map[string]string{"X-Sandbox-UID": string(named.UID)}, 200},
		"with the address of a pod": {"alice", "team-a", id, map[string]string{"X-Sandbox-Pod-IP": "169.254.169.254"}, 200},
		"another namespace":         {"bob", "team-a", id, nil, 403},
		"another namespace's id":    {"bob", "team-b", id, nil, 502},
		"another namespace's name":  {"bob", "team-b", "named", nil, 502},
		"no token":                  {"", "team-a", id, nil, 401},
		"an unknown token":          {"mallory", "team-a", id, nil, 401},
		"a key of forkd":            {fakecluster.Token, "team-a", id, nil, 401},
		"no sandbox":                {"alice", "team-a", "sb-aaaaaaaaaaaaaaaaaaaaa", nil, 502},
		"a path as id":              {"alice", "team-a", "../../v1/keys", nil, 400},
		"a filter as id":            {"alice", "team-a", "a=b&c", nil, 400},
		"no namespace's name":       {"alice", "team_a", id, nil, 400},
		"a port out of range":       {"alice", "team-a", id, map[string]string{"X-Sandbox-Port": "99999"}, 400},
		"no time":                   {"alice", "team-a", id, map[string]string{"X-Sandbox-Timeout": "NaN"}, 400},
		"a port without a server":   {"alice", "team-a", id, map[string]string{"X-Sandbox-Port": "9001"}, 502},
	} {
		status, body := ask(t, url, tt.token, tt.ns, tt.id, tt.more)
		if status != tt.status || status != 200 && !strings.HasPrefix(body, `{"detail":`) {
			t.Errorf("%s: %d %s, want %d", name, status, body, tt.status)
		}
	}
	status, body := ask(t, url, "alice", "team-a", id, map[string]string{"X-Sandbox-Port": "9000", "Forkd-Node": "node-b"})
	if status != 200 || strings.Contains(body, "alice") || strings.Contains(body, fakecluster.Token) || strings.Contains(body, "X-Sandbox") {
		t.Errorf("a server in the sandbox got %d %s: it must not see the caller's token", status, body)
	}
}

// ask sends a command by the router. It is GET / for another port.
func ask(t *testing.T, url, token, ns, id string, more map[string]string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/execute", strings.NewReader(`{"command":"echo hello"}`))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("X-Sandbox-ID", id)
	r.Header.Set("X-Sandbox-Namespace", ns)
	for k, v := range more {
		r.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}

// echo starts a server on port 9000 of a sandbox. It answers with the headers of the request.
func (w *world) echo(id string) {
	w.t.Helper()
	if w.site.vms == nil {
		for _, n := range w.cluster.Nodes {
			n.Daemon.Engine.Ports = map[uint16]func(net.Conn){9000: echoHeaders}
		}
		return
	}
	const program = `#!/bin/busybox sh
text=
while read -r line; do
	line=${line%$(printf '\r')}
	[ "$line" ] || break
	text="$text$line;"
done
printf 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' ${#text} "$text"
`
	if err := w.forkd.Upload(w.t.Context(), id, "/tmp/echo", "", strings.NewReader(program)); err != nil {
		w.t.Fatal(err)
	}
	w.exec(id, "sh", "-c", "/bin/busybox chmod +x /tmp/echo; /bin/busybox nc -ll -p 9000 -e /tmp/echo >/dev/null 2>&1 &")
}

// echoHeaders is a server in a sandbox that answers with the headers of the request.
func echoHeaders(c net.Conn) {
	buf := make([]byte, 64<<10)
	n, _ := c.Read(buf)
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", n, buf[:n])
}
