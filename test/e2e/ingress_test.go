package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
)

// guestServers starts servers in a sandbox's interpreter: files over HTTP on 127.0.0.1:8000, and an
// echo on [::1]:9000, which ends after its client.
const guestServers = `
import os, subprocess
os.makedirs("/tmp/www", exist_ok=True)
subprocess.Popen(["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1", "-d", "/tmp/www"],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
subprocess.Popen(["python3", "-c", """
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            b = self.request.recv(65536)
            if not b: break
            self.request.sendall(b)
class Server(socketserver.ThreadingTCPServer):
    import socket
    address_family = socket.AF_INET6
    allow_reuse_address = True
Server(("::1", 9000), Echo).serve_forever()
"""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
`

// Servers on a guest's localhost are reachable in their sandbox, and in its forks, which have them
// from the snapshot. Each sandbox answers separately.
func TestServersInSandboxesAreReached(t *testing.T) {
	d := shared(t)
	d.unchanged()
	source := d.fork(1)[0]
	_, err := d.c.DialPort(t.Context(), source.ID, 8000)
	wantError(t, err, api.CodePortClosed, "8000", source.ID)
	d.eval(source.ID, guestServers)
	eventually(t, "servers", func() bool {
		for _, port := range []uint16{8000, 9000} {
			c, err := d.c.DialPort(t.Context(), source.ID, port)
			if err != nil {
				return false
			}
			c.Close()
		}
		return true
	})
	open, err := d.c.DialPort(t.Context(), source.ID, 9000)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	wantEcho(t, open, "before the branch")

	res := d.branch(source.ID, api.BranchRequest{Tag: "servers", N: 2})
	wantEcho(t, open, "after the branch") // the source's connections survive
	for _, sb := range append([]api.SandboxInfo{source}, res.Children...) {
		d.sub(sb.ID, func(t *testing.T) {
			if sb.Error != "" {
				t.Fatal(sb.Error)
			}
			d.sh(sb.ID, "hostname > /tmp/www/name")
			d.reached(t, sb)
		})
	}
}

// reached sends requests to a sandbox's servers in each possible way.
func (d *daemon) reached(t *testing.T, sb api.SandboxInfo) {
	t.Helper()
	if got, status := d.byHost(t, fmt.Sprintf("8000-%s.forkd.localhost", sb.DNSID), nil); status != 200 || got != sb.Hostname {
		t.Errorf("by host name: %d, %q, want %q", status, got, sb.Hostname)
	}
	byHeader := http.Header{"E2b-Sandbox-Id": {sb.DNSID}, "E2b-Sandbox-Port": {"8000"}}
	if got, status := d.byHost(t, "localhost", byHeader); status != 200 || got != sb.Hostname {
		t.Errorf("by headers: %d, %q", status, got)
	}
	if got, status := d.byHost(t, fmt.Sprintf("8001-%s.forkd.localhost", sb.DNSID), nil); status != 502 ||
		!strings.Contains(got, "port is not open") {
		t.Errorf("a closed port: %d, %q", status, got)
	}
	c, err := d.c.DialPort(t.Context(), sb.DNSID, 9000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantEcho(t, c, strings.Repeat("through the API ", 10_000))
	local := d.forwarded(t, sb.ID, ":9000")
	f, err := net.Dial("tcp", local)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	wantEcho(t, f, "through a port here")
	if err := f.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(f); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

// byHost requests /name from the daemon's listener with a Host header.
func (d *daemon) byHost(t *testing.T, host string, header http.Header) (body string, status int) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(d.url(), "unix://"))
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/name", nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b)), resp.StatusCode
}

// forwarded runs forkd port-forward until the end of the test, and returns its address.
func (d *daemon) forwarded(t *testing.T, id, port string) string {
	t.Helper()
	cmd := exec.Command(d.forkd(), "-q", "port-forward", id, port)
	cmd.Env, cmd.Stderr = d.env(), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(out).ReadString('\n')
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("port-forward ended with %v", err)
		}
	})
	if readErr != nil {
		t.Fatal(readErr)
	}
	return strings.TrimSpace(line)
}

func wantEcho(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	go func() { _, _ = io.WriteString(c, text) }()
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Errorf("the echo of %d bytes: %v", len(text), err)
	}
}
