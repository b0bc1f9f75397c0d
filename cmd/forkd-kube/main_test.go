package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/tlscert"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// built is the path of the program under test.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "forkd-kube-")
	if err != nil {
		panic(err)
	}
	built = filepath.Join(dir, "forkd-kube")
	out, err := exec.Command("go", "build", "-o", built, ".").CombinedOutput()
	if err != nil {
		panic(string(out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// free returns an address that is free now.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// running is a running gateway.
type running struct {
	*exec.Cmd
	url, metrics string
	client       *http.Client
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	listen, metrics := free(t), free(t)
	p := &running{Cmd: exec.CommandContext(t.Context(), built, append([]string{"gateway", "--listen", listen,
		"--metrics-listen", metrics, "--poll-interval", "100ms"}, args...)...), url: "http://" + listen, metrics: "http://" + metrics,
		client: &http.Client{Transport: &http.Transport{}}}
	p.Stderr = os.Stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(20 * time.Second); ; {
		if resp, err := http.Get(p.metrics + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == 200 {
				return p
			}
		}
		if time.Now().After(until) {
			t.Fatal("the gateway is not ready")
		}
		time.Sleep(20 * time.Millisecond) // elapses: polls a program that starts
	}
}

func (p *running) do(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	r, _ := http.NewRequest(method, p.url+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+fakecluster.Token)
	resp, err := p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func TestTheProgram(t *testing.T) {
	c := fakecluster.Start(t, 2, "py", nil)
	p := start(t, "--nodes", c.List, "--grace", "10s", "--drain-delay", "300ms")
	status, body := p.do(t, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":20}`)
	var made []api.SandboxInfo
	if err := json.Unmarshal([]byte(body), &made); status != 201 || err != nil || len(made) != 20 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := p.do(t, "GET", "/metrics", ""); status == 200 {
		t.Errorf("metrics at the clients' address: %s", body)
	}
	resp, err := http.Get(p.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	for _, want := range []string{`forkd_gateway_requests_total{kind="fork",status="2xx"} 1`, `forkd_gateway_node_up{node="node-a"} 1`,
		`forkd_gateway_placements_total{result="accepted"} 2`, "forkd_gateway_requests_in_flight 0", "go_goroutines"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}

	// A stream that ends within the grace is served to its end.
	release := make(chan struct{})
	for _, n := range c.Nodes {
		n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if !strings.HasSuffix(r.URL.Path, "/console") {
				pass.ServeHTTP(w, r)
				return
			}
			fmt.Fprintln(w, "begin")
			_ = http.NewResponseController(w).Flush()
			<-release
			fmt.Fprintln(w, "end")
		})
	}
	r, _ := http.NewRequest("GET", p.url+"/v1/sandboxes/"+made[0].ID+"/console?follow=true", nil)
	r.Header.Set("Authorization", "Bearer "+fakecluster.Token)
	stream, err := p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	lines.Scan()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); ; {
		resp, err := http.Get(p.metrics + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == 503 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the gateway that stops is still ready")
		}
	}
	if status, _ := p.do(t, "GET", "/v1/sandboxes", ""); status != 200 {
		t.Errorf("a request before the end of the delay: %d", status)
	}
	close(release)
	if !lines.Scan() || lines.Text() != "end" || lines.Scan() || lines.Err() != nil {
		t.Errorf("the stream ended with %q, %v", lines.Text(), lines.Err())
	}
	p.client.CloseIdleConnections()
	if err := p.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

// A stream without an end is cut off after the grace.
func TestTheGraceEnds(t *testing.T) {
	c := fakecluster.Start(t, 1, "py", nil)
	p := start(t, "--nodes", c.List, "--grace", "300ms")
	c.Nodes[0].Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.URL.Path != "/v1/events" {
			pass.ServeHTTP(w, r)
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	r, _ := http.NewRequest("GET", p.url+"/v1/events", nil)
	r.Header.Set("Authorization", "Bearer "+fakecluster.Token)
	resp, err := p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the program still runs")
	}
}

func TestOverTLS(t *testing.T) {
	c := fakecluster.Start(t, 2, "py", nil)
	cert, key, err := tlscert.Made(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "--nodes", c.List, "--tls-cert", cert, "--tls-key", key)
	p.url = strings.Replace(p.url, "http://", "https://", 1)
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		// #nosec G402 -- the certificate was made for this test
		p.client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: h2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		if status, body := p.do(t, "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":20}`); status != 201 {
			t.Errorf("%s: %d %s", name, status, body)
		}
		resp, err := p.client.Get(p.url + "/healthz")
		if err != nil || resp.Proto != name {
			t.Errorf("%v, %v", resp, err)
		}
		resp.Body.Close()
	}
}

func TestMistakes(t *testing.T) {
	list := filepath.Join(t.TempDir(), "nodes.yaml")
	if err := os.WriteFile(list, []byte("- {name: a, url: http://h, token-file: t}\n- {name: a, url: http://i, token-file: t}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := list + ".good"
	if err := os.WriteFile(good, []byte("- {name: a, url: \"http://127.0.0.1:1\", token-file: t}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"gateway":                                                 "--nodes or --nodes-service is missing",
		"gateway --nodes /nowhere":                                "--nodes: open /nowhere",
		"gateway --nodes " + list:                                 "the name a stands twice",
		"gateway --nodes x --listen :80":                          "beyond loopback",
		"gateway --nodes x --listen 80":                           "want HOST:PORT",
		"gateway --nodes x --tls-cert c":                          "go together",
		"gateway --nodes x --grace -1s":                           "cannot be negative",
		"gateway --nodes x --log-level y":                         "want debug",
		"gateway --nodes x --disk-floor NaN":                      "want 0 to 100",
		"gateway --nodes x --router-auth y":                       "want kubernetes or none",
		"gateway --nodes " + good + " --router-key-file /nowhere": "--router-key-file",
		"gateway --nodes " + good + " --resume-key-file /nowhere": "--resume-key-file: ",
		"operator":                "--url is missing",
		"operator --url http://h": "--key-file is missing",
		"operator --url http://h --key-file x --workers 0":           "want 1 to 256",
		"operator --url http://h --key-file x":                       "--kubeconfig is missing",
		"operator --url http://h --key-file x --kubeconfig /nowhere": "--kubeconfig: ",
		"gateway --colour": "unknown flag: --colour",
		"gatway":           "gateway",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		out, err := exec.CommandContext(ctx, built, strings.Fields(args)...).CombinedOutput()
		cancel()
		var code *exec.ExitError
		if code, _ = err.(*exec.ExitError); code == nil || code.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v %s, want %q", args, err, out, want)
		}
	}
}

func TestHelpFitsTheScreen(t *testing.T) {
	for _, command := range []string{"gateway", "operator"} {
		out, err := exec.Command(built, command, "--help").CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			if len(line) > 101 {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
	}
}
