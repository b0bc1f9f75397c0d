// Package kubebench starts a real control plane of Kubernetes for tests: etcd, the API server, the controller manager,
// and the scheduler for tests with pods, each a process on loopback. scripts/kube-bench.sh builds them. The trap: the API server has to end before
// etcd, otherwise its end takes minutes.
package kubebench

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Token is the administrator's token. It has all rights.
const Token = "bench-administrator"

// Plane is a running control plane.
type Plane struct {
	// Dir has its data, its logs and a kubeconfig.
	Dir string
	// URL is the address of the API server.
	URL string

	programs  string
	etcd, api *process
	manager   *process
	scheduler *process
	etcdURL   string
	peerURL   string
	port      int
}

// process is one program of the control plane.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Programs returns the directory of the programs, or an empty string if they are not built.
func Programs() string {
	dir := os.Getenv("FORKD_TEST_KUBE")
	// #nosec G703 -- the developer names the directory
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); dir == "" || err != nil {
		return ""
	}
	return dir
}

// Start starts a control plane, with the administrator Token, and the tokens of users, which are names of users with
// the same token.
func Start(t testing.TB, users ...string) *Plane {
	t.Helper()
	p := start(t, users)
	p.manage(t, controllers...)
	return p
}

// StartWithPods starts a control plane that makes the pods of Deployments and DaemonSets, and chooses their nodes.
func StartWithPods(t testing.TB) *Plane {
	t.Helper()
	p := start(t, nil)
	p.manage(t, append(slices.Clone(controllers), "daemonset-controller", "deployment-controller", "replicaset-controller",
		"endpointslice-controller", "disruption-controller", "root-ca-certificate-publisher-controller")...)
	p.scheduler = p.start(t, "kube-scheduler", "--kubeconfig="+p.Path("kubeconfig"), "--leader-elect=false",
		"--secure-port=0")
	return p
}

// controllers are those of every control plane.
var controllers = []string{"garbage-collector-controller", "namespace-controller", "serviceaccount-controller",
	"serviceaccount-token-controller"}

func (p *Plane) manage(t testing.TB, controllers ...string) {
	t.Helper()
	p.manager = p.start(t, "kube-controller-manager", "--kubeconfig="+p.Path("kubeconfig"), "--leader-elect=false",
		"--secure-port=0", "--use-service-account-credentials=false", "--service-account-private-key-file="+p.Path("sa.key"),
		"--root-ca-file="+p.Path("tls/apiserver.crt"), "--controllers="+strings.Join(controllers, ","))
}

func start(t testing.TB, users []string) *Plane {
	t.Helper()
	p := &Plane{Dir: t.TempDir(), programs: Programs()}
	if p.programs == "" {
		t.Fatal("FORKD_TEST_KUBE names no directory with a control plane: make test-kube builds it")
	}
	ports := freePorts(t, 3)
	p.etcdURL, p.peerURL = address("http", ports[0]), address("http", ports[1])
	p.port, p.URL = ports[2], address("https", ports[2])
	p.keys(t, users)
	t.Cleanup(p.stop)
	p.StartEtcd(t)
	p.StartAPI(t)
	p.kubeconfig(t, Token, "kubeconfig")
	return p
}

func address(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

// Path returns the path of a file of the control plane.
func (p *Plane) Path(name string) string { return filepath.Join(p.Dir, name) }

// REST returns the configuration of a client with a token.
func (p *Plane) REST(token string) *rest.Config {
	return &rest.Config{Host: p.URL, BearerToken: token, QPS: 1000, Burst: 1000,
		TLSClientConfig: rest.TLSClientConfig{CAFile: p.Path("tls/apiserver.crt")}}
}

// Kubeconfig writes a kubeconfig with a token, and returns its path.
func (p *Plane) Kubeconfig(t testing.TB, token string) string {
	t.Helper()
	return p.kubeconfig(t, token, "kubeconfig-"+token)
}

func (p *Plane) kubeconfig(t testing.TB, token, name string) string {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: bench
clusters: [{name: bench, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: bench, user: {token: %q}}]
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
`, p.URL, p.Path("tls/apiserver.crt"), token)
	if err := os.WriteFile(p.Path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p.Path(name)
}

// keys writes the key of service accounts, and the file of tokens.
func (p *Plane) keys(t testing.TB, users []string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	tokens := Token + ",admin,1,system:masters\n"
	for i, u := range users {
		tokens += fmt.Sprintf("%s,%s,%d\n", u, u, i+2)
	}
	for name, text := range map[string][]byte{"tokens.csv": []byte(tokens),
		"sa.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})} {
		if err := os.WriteFile(p.Path(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// StartEtcd starts etcd, again after KillEtcd.
func (p *Plane) StartEtcd(t testing.TB) {
	t.Helper()
	p.etcd = p.start(t, "etcd", "--data-dir="+p.Path("etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+p.etcdURL, "--advertise-client-urls="+p.etcdURL, "--listen-peer-urls="+p.peerURL,
		"--initial-advertise-peer-urls="+p.peerURL, "--initial-cluster=default="+p.peerURL)
	p.await(t, "etcd", p.etcd, func() error { return probe(http.DefaultClient, p.etcdURL+"/health", "") })
}

// StartAPI starts the API server, again after KillAPI.
func (p *Plane) StartAPI(t testing.TB) {
	t.Helper()
	p.api = p.start(t, "kube-apiserver", "--etcd-servers="+p.etcdURL, "--secure-port="+strconv.Itoa(p.port),
		"--bind-address=127.0.0.1", "--cert-dir="+p.Path("tls"), "--token-auth-file="+p.Path("tokens.csv"),
		"--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://bench",
		"--service-account-key-file="+p.Path("sa.key"), "--service-account-signing-key-file="+p.Path("sa.key"),
		"--allow-privileged=false", "--shutdown-delay-duration=0s", "--profiling=false", "--endpoint-reconciler-type=none")
	p.await(t, "kube-apiserver", p.api, func() error {
		c, err := p.http()
		if err != nil {
			return err
		}
		defer c.CloseIdleConnections()
		return probe(c, p.URL+"/readyz", Token)
	})
}

// http returns a client of the API server.
func (p *Plane) http() (*http.Client, error) {
	rt, err := rest.TransportFor(p.REST(""))
	return &http.Client{Transport: rt, Timeout: 5 * time.Second}, err
}

func probe(c *http.Client, url, token string) error {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// KillEtcd and KillAPI end the programs with SIGKILL.
func (p *Plane) KillEtcd() { p.etcd.kill() }

// KillAPI ends the API server.
func (p *Plane) KillAPI() { p.api.kill() }

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *Plane) stop() {
	for _, one := range []*process{p.scheduler, p.manager, p.api, p.etcd} { // etcd last
		if one == nil {
			continue
		}
		_ = one.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-one.ended:
		case <-time.After(10 * time.Second):
			one.kill()
		}
	}
}

func (p *Plane) start(t testing.TB, name string, args ...string) *process {
	t.Helper()
	log, err := os.OpenFile(p.Path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(p.programs, name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	bindToParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	one := &process{cmd, make(chan struct{})}
	go func() {
		defer close(one.ended)
		defer log.Close()
		_ = cmd.Wait()
	}()
	return one
}

func (p *Plane) await(t testing.TB, name string, one *process, ready func() error) {
	t.Helper()
	var err error
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if err = ready(); err == nil {
			return
		}
		select {
		case <-one.ended:
			t.Fatalf("%s ended:\n%s", name, p.tail(name))
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("%s is not ready: %v\n%s", name, err, p.tail(name))
}

func (p *Plane) tail(name string) string {
	b, _ := os.ReadFile(p.Path(name + ".log"))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// writes matches the API server's counts of requests to etcd.
var writes = regexp.MustCompile(`^etcd_requests_total\{group="([^"]*)",` +
	`operation="(create|update|delete)",resource="([^"]*)"\} ([0-9.e+]+)$`)

// Writes returns the API server's writes to etcd since its start, by group, resource and operation. Leases are left
// out.
func (p *Plane) Writes(ctx context.Context) (map[string]int, error) {
	c, err := p.http()
	if err != nil {
		return nil, err
	}
	defer c.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+Token)
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for line := range bytes.Lines(body) {
		m := writes.FindStringSubmatch(strings.TrimSpace(string(line)))
		if m == nil || m[3] == "leases" || m[3] == "masterleases" {
			continue
		}
		n, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			return nil, err
		}
		out[m[1]+"/"+m[3]+" "+m[2]] += int(n)
	}
	return out, nil
}
