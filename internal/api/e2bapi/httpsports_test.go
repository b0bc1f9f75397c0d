package e2bapi_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Servers with TLS of their own are reached at the ports that httpsPorts names, from the start or after a change.
func TestServersWithTLSInASandbox(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "over TLS: %t, %s", r.TLS != nil, r.Host)
	}))
	t.Cleanup(server.Close)
	port := server.Listener.Addr().(*net.TCPAddr).Port
	b := newBench(t)
	ask := func(s created) answer {
		return b.do("GET", "/", "", "X-API-KEY", "", "E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", fmt.Sprint(port), "Host", "app.example")
	}
	ports := fmt.Sprintf(`{"httpsPorts":[%d]}`, port)
	s := b.create(`{"templateID":"base","network":` + ports + `}`)
	if a := ask(s); a.StatusCode != 200 || a.body != "over TLS: true, app.example" {
		t.Errorf("from the start: %s %s", a.Status, a.body)
	}
	if d := want[struct{ Network struct{ HTTPSPorts []int } }](t, b.do("GET", "/sandboxes/"+s.SandboxID, ""), 200); len(d.Network.HTTPSPorts) != 1 {
		t.Errorf("clients see %+v", d)
	}
	want[any](t, b.do("PUT", "/sandboxes/"+s.SandboxID+"/network", `{}`), 204)
	if a := ask(s); a.StatusCode != 400 { // the server's own answer to a request without TLS
		t.Errorf("without the port: %s %s", a.Status, a.body)
	}
	want[any](t, b.do("PUT", "/sandboxes/"+s.SandboxID+"/network", ports), 204)
	if a := ask(s); a.StatusCode != 200 {
		t.Errorf("after the change: %s %s", a.Status, a.body)
	}
	// A server that speaks no TLS there is an error of the sandbox, not of the daemon.
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	port = plain.Listener.Addr().(*net.TCPAddr).Port
	want[any](t, b.do("PUT", "/sandboxes/"+s.SandboxID+"/network", fmt.Sprintf(`{"httpsPorts":[%d]}`, port)), 204)
	if a := ask(s); a.StatusCode != 502 {
		t.Errorf("a server without TLS: %s %s", a.Status, a.body)
	}
}
