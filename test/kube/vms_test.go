package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/tlscert"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/machine/appliance"
	"github.com/forkd/forkd/internal/testing/fakecluster"
	"github.com/forkd/forkd/test/harness"
)

const (
	forkdProgram = "../../bin/forkd"
	smallImage   = "small"
	home         = "/var/lib/forkd/kube" // of the nodes, in the machine
)

// vms are three nodes in one machine: `forkd serve` under `forkd-kube init`, each in a PID namespace of its own as in a
// container, with its own store and run directory. A node's port in the machine is also the port of its link on this
// host. So gateway and peers use the same URL, https://127.0.0.1:PORT: the gateway's connections go through the link and
// a port that QEMU forwards, those between the nodes stay in the machine.
type vms struct {
	machine   *harness.Machine
	nodes     []*fakecluster.Node
	clients   map[string]*client.Client // of the daemons, past the gateway
	ports     map[string]int
	cert, key string // files on this host
}

func startVMs(t *testing.T) *vms {
	t.Helper()
	v := &vms{machine: harness.StartMachine(t, "-kube", "--memory", "4000"), clients: map[string]*client.Client{},
		ports: map[string]int{}}
	v.upload(t)
	for i := range 3 {
		v.prepare(t, fmt.Sprintf("node-%c", 'a'+i))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(v.try("tail -n 60 " + home + "/*.log; dmesg | tail -n 20"))
		}
		v.root(t, `for d in /proc/[0-9]*; do cat $d/cmdline 2>/dev/null | tr '\0' ' ' | grep -q '^`+home+`/forkd-kube init' && kill -9 ${d#/proc/}; done
			sleep 1; rm -rf `+home)
	})
	for _, n := range v.nodes {
		v.start(t, n.Name)
	}
	first, ctx := v.clients[v.nodes[0].Name], t.Context()
	if _, err := first.CreateSnapshot(ctx, api.CreateSnapshotRequest{Tag: tag, Image: smallImage}, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range v.nodes[1:] {
		began := time.Now()
		if _, err := v.clients[n.Name].CopySnapshot(ctx, tag, []string{v.nodes[0].Link.URL}); err != nil {
			t.Fatalf("copy of the snapshot to %s: %v", n.Name, err)
		}
		t.Logf("snapshot copied to %s in %s", n.Name, time.Since(began).Round(time.Millisecond))
	}
	return v
}

// upload copies the program, keys, certificate and image into the machine.
func (v *vms) upload(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	var err error
	if v.cert, v.key, err = tlscert.Made(filepath.Join(dir, "tls")); err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(dir, "keys.json")
	peer, err := exec.CommandContext(t.Context(), forkdProgram, "-q", "key", "create", "peers", "--scope", "layers", "--file", keys).Output()
	if err != nil {
		t.Fatalf("key create: %v", err)
	}
	for name, text := range map[string][]byte{"peer.key": peer, "token": []byte(fakecluster.Token + "\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	images := filepath.Join(dir, "images")
	if err := harness.PutSmallImage(t, images, smallImage, harness.SmallImage{}); err != nil {
		t.Fatal(err)
	}
	args := []string{"machine", "exec", "--name", v.machine.Name}
	for from, to := range map[string]string{"../../bin/forkd-kube": "forkd-kube", v.cert: "tls.crt", v.key: "tls.key", keys: "keys.json",
		filepath.Join(dir, "peer.key"): "peer.key", filepath.Join(dir, "token"): "token"} {
		args = append(args, "-u", from+":"+home+"/"+to)
	}
	files, err := filepath.Glob(filepath.Join(images, smallImage, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		args = append(args, "-u", f+":"+home+"/images/"+smallImage+"/"+filepath.Base(f))
	}
	v.root(t, "rm -rf "+home)
	if out, err := exec.CommandContext(t.Context(), forkdProgram, append(args, "--", "chmod", "-R", "go-rwx", home)...).CombinedOutput(); err != nil {
		t.Fatalf("upload: %v: %s", err, out)
	}
}

// prepare makes a node's link, and its client.
func (v *vms) prepare(t *testing.T, name string) {
	t.Helper()
	pem, err := os.ReadFile(v.cert)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(v.cert, v.key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	m, err := appliance.Open(v.machine.Name)
	if err != nil {
		t.Fatal(err)
	}
	host, err := m.Forward(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: 64, DisableCompression: true}
	link := fakecluster.NewLink(&url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", host)}, transport)
	link.Listener.Close()
	link.Listener, link.TLS = l, &tls.Config{Certificates: []tls.Certificate{pair}}
	link.StartTLS()
	t.Cleanup(func() {
		link.CloseClientConnections()
		link.Close()
		transport.CloseIdleConnections()
	})
	files, err := tlscert.Open(v.cert, v.key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if v.clients[name], err = client.New(client.Options{URL: link.URL, Token: fakecluster.Token, Fingerprint: files.Fingerprint()}); err != nil {
		t.Fatal(err)
	}
	v.ports[name] = port
	v.nodes = append(v.nodes, &fakecluster.Node{Name: name, Link: link, Key: sandbox.NodeKeyOf(fakecluster.UID(name)), CAFile: v.cert})
}

// start starts a node's container: its first process is forkd-kube init.
func (v *vms) start(t *testing.T, name string) {
	t.Helper()
	flags := []string{"serve", "--node-name=" + name, "--node-uid=" + fakecluster.UID(name), fmt.Sprintf("--listen=tcp://0.0.0.0:%d", v.ports[name]),
		"--listen=unix:///run/kube/" + name + "/forkd.sock", "--data=" + home + "/" + name, "--run=/run/kube/" + name,
		"--tls-cert=" + home + "/tls.crt", "--tls-key=" + home + "/tls.key", "--token-file=" + home + "/token", "--keys-file=" + home + "/keys.json",
		"--peer=127.0.0.1", "--peer-key-file=" + home + "/peer.key", "--peer-ca=" + home + "/tls.crt", "--jail=best"}
	v.root(t, fmt.Sprintf(`mkdir -p %[1]s/%[2]s /run/kube/%[2]s && chmod 700 %[1]s/%[2]s /run/kube/%[2]s
[ -d %[1]s/%[2]s/images ] || cp -al %[1]s/images %[1]s/%[2]s/images
busybox setsid busybox unshare -p -f -m sh -c 'mount -t proc proc /proc && exec "$@"' sh %[1]s/forkd-kube init -- /usr/bin/forkd %[3]s >>%[1]s/%[2]s.log 2>&1 </dev/null &`,
		home, name, strings.Join(flags, " ")))
	v.ready(t, name)
}

// ready waits until a node's daemon answers.
func (v *vms) ready(t *testing.T, name string) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) { // elapses: the daemon starts
		err := v.clients[name].Ready(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s does not answer: %v\n%s", name, err, v.try("tail -n 40 "+home+"/"+name+".log"))
		}
	}
}

// try runs a script in the machine, and returns its output.
func (v *vms) try(script string) string {
	out, _ := v.run(context.Background(), script)
	return out
}

func (v *vms) run(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, forkdProgram, "machine", "exec", "--name", v.machine.Name, "--timeout", "3m", "--", "sh", "-c", script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// root runs a script in the machine, as root.
func (v *vms) root(t *testing.T, script string) string {
	t.Helper()
	out, err := v.run(context.WithoutCancel(t.Context()), script)
	if err != nil {
		t.Errorf("in the machine: %v: %s\n%s", err, out, script)
	}
	return out
}

// pids returns the processes in the machine whose command line matches.
func (v *vms) pids(t *testing.T, line string) []string {
	t.Helper()
	return strings.Fields(v.root(t, `for d in /proc/[0-9]*; do cat $d/cmdline 2>/dev/null | tr '\0' ' ' | grep -q '`+line+`' && echo ${d#/proc/}; done; true`))
}

// daemon and container return the patterns of a node's processes: the daemon, and the first process of its container.
func daemon(node string) string { return "^/usr/bin/forkd serve --node-name=" + node + " " }
func container(node string) string {
	return "^" + home + "/forkd-kube init .*--node-name=" + node + " "
}

// kill ends the processes with SIGKILL.
func (v *vms) kill(t *testing.T, line string) {
	t.Helper()
	pids := v.pids(t, line)
	if len(pids) != 1 {
		t.Errorf("%d processes %q, want one", len(pids), line)
	}
	v.root(t, "kill -9 "+strings.Join(pids, " "))
}

// cluster returns a gateway over the first n nodes, and removes the test's leftovers at its end.
func (v *vms) cluster(t *testing.T, n int) *fakecluster.Cluster {
	t.Helper()
	list := v.nodes[:n]
	t.Cleanup(func() {
		for _, n := range list {
			n.Link.Hook(nil)
			v.clear(t, n.Name)
		}
	})
	return fakecluster.Over(t, list, 500*time.Millisecond, nil)
}

// clear ends sandboxes, and deletes snapshots.
func (v *vms) clear(t *testing.T, name string) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 3*time.Minute)
	defer stop()
	c := v.clients[name]
	drain, err := c.DrainStatus(ctx)
	if err == nil && drain.Draining {
		_, err = c.CancelDrain(ctx)
	}
	if err != nil {
		t.Errorf("the drain of %s: %v", name, err)
	}
	all, err := c.ListSandboxes(ctx)
	for _, sb := range all {
		if err := c.Kill(ctx, sb.ID); err != nil && !client.IsNotFound(err) {
			t.Errorf("kill %s: %v", sb.ID, err)
		}
	}
	if err != nil {
		t.Errorf("sandboxes of %s: %v", name, err)
	}
	pools, err := c.Pools(ctx)
	for _, p := range pools {
		if err := c.SetPool(ctx, p.Tag, 0); err != nil {
			t.Errorf("pool %s of %s: %v", p.Tag, name, err)
		}
	}
	if err != nil {
		t.Errorf("pools of %s: %v", name, err)
	}
	snapshots, err := c.ListSnapshots(ctx)
	slices.Reverse(snapshots) // children first
	for _, s := range snapshots {
		if s.Tag == tag {
			continue
		}
		if err := c.DeleteSnapshot(ctx, s.Tag, client.DeleteOptions{}); err != nil && !client.IsNotFound(err) {
			t.Errorf("delete %s: %v", s.Tag, err)
		}
	}
	if err != nil {
		t.Errorf("snapshots of %s: %v", name, err)
	}
}

// clean is nothingIsLeft's view of three nodes with one snapshot each: the directory of layers has the snapshot's layer
// and its digests.
const clean = "2\n2\n2"

// nothingIsLeft compares processes and directories with nodes that never had a sandbox.
func (v *vms) nothingIsLeft(t *testing.T) {
	t.Helper()
	var left string
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Second) { // elapses: the daemons clean up
		left = strings.TrimSpace(v.root(t, `for d in /proc/[0-9]*; do busybox readlink $d/exe | grep forkd-vmm; done; ls -d /run/kube/*/vm/* 2>/dev/null
			for n in `+home+`/node-*/; do ls $n/layers/layers | wc -l; done; true`))
		if left == clean || time.Now().After(until) {
			break
		}
	}
	if left != clean {
		t.Errorf("after all tests the nodes have processes of VMs, directories and layers:\n%s\nwant %q\n%s", left, clean, v.try("ls -l "+home+"/node-*/layers/layers"))
	}
	if out := v.root(t, "grep -h -e 'panic:' -e 'DATA RACE' "+home+"/*.log; true"); out != "" {
		t.Errorf("the daemons' logs have\n%s", out)
	}
}
