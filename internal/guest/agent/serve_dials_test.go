package agent_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/dialwire"
)

// unspliced returns connections that Go does not splice, because Go keeps pipes for splicing, which
// would look like a leak. vsock connections are not spliced either.
type unspliced struct{ net.Listener }

func (u unspliced) Accept() (net.Conn, error) {
	c, err := u.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ net.Conn }{c}, nil
}

// A whole agent connects its host with a server in the guest, here this process. It still does so
// after the guest has taken another identity.
func TestTheAgentConnectsItsHostWithServers(t *testing.T) {
	b := startAgent(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, r.Host)
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "d")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.agent.ServeDials(ctx, unspliced{l}) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "unix", path)
			if err != nil {
				return nil, err
			}
			port := uint16(server.Listener.Addr().(*net.TCPAddr).Port)
			if err := dialwire.WriteRequest(c, dialwire.Request{Port: port, Family: dialwire.IPv4}); err != nil {
				return nil, err
			}
			if code, err := dialwire.ReadAnswer(c); err != nil || code != dialwire.OK {
				t.Errorf("the answer is %s, %v", code, err)
			}
			return c, nil
		},
	}}
	for range 2 {
		resp, err := client.Get("http://in.the.guest/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != "in.the.guest" {
			t.Errorf("got %q, %v", body, err)
		}
		b.become(t, nil)
	}
}
