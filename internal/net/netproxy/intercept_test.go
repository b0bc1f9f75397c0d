package netproxy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netproxy"
	"github.com/forkd/forkd/internal/testing/bothways"
)

// intercepted returns a guest's connection to a server through an Interceptor.
func intercepted(t *testing.T, host string, trusted bool) (guest *tls.Config, dial func() net.Conn) {
	t.Helper()
	return interceptedTo(t, host, trusted, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %q %q", r.Proto, r.Header.Values("Authorization"), r.Host)
	}, map[string]string{"authorization": "secret"})
}

// interceptedTo does the same as intercepted, with a handler for the server and headers to set.
func interceptedTo(
	t *testing.T, host string, trusted bool, h http.HandlerFunc, headers map[string]string,
) (guest *tls.Config, dial func() net.Conn) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	if trusted {
		roots.AddCert(s.Certificate())
	}
	i := netproxy.NewInterceptor(roots, nil)
	ca, err := i.CA("tag a")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(ca)) {
		t.Fatal("no certificate")
	}
	return &tls.Config{RootCAs: pool, ServerName: host}, func() net.Conn {
		far, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		near, c := net.Pipe()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			i.Serve(ctx, netproxy.Session{
				Authority: "tag a", Host: host, Near: near, Far: far,
				Headers: func() map[string]string { return headers },
			})
			near.Close()
			far.Close()
		}()
		t.Cleanup(func() { cancel(); c.Close(); <-done })
		return c
	}
}

func get(t *testing.T, config *tls.Config, dial func() net.Conn, h2 bool, host string) (status int, body string, err error) {
	t.Helper()
	tr := &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: h2,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
	}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequest("GET", "https://example.com/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header["Authorization"] = []string{"mine", "mine too"}
	r.Header.Set("Connection", "Authorization")
	if h2 {
		r.Header.Del("Connection")
	}
	res, err := tr.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func TestHeadersAreSetInPlaceOfTheGuests(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/2": true, "HTTP/1": false} {
		t.Run(name, func(t *testing.T) {
			config, dial := intercepted(t, "example.com", true)
			_, body, err := get(t, config, dial, h2, "example.com")
			if err != nil || !strings.HasSuffix(body, `["secret"] "example.com"`) {
				t.Errorf("body %s: %v", body, err)
			}
		})
	}
}

// Servers may answer before they have the whole request, in both versions of HTTP.
func TestServersAnswerBeforeTheEndOfARequest(t *testing.T) {
	for _, version2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", version2), func(t *testing.T) {
			config, dial := interceptedTo(t, "example.com", true, bothways.Echo, map[string]string{"authorization": "secret"})
			guest := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: version2,
				DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }}
			defer guest.CloseIdleConnections()
			bothways.Talk(t, &http.Client{Transport: guest}, "https://example.com/", nil)
		})
	}
}

func TestAnotherAuthorityGetsNoHeaders(t *testing.T) {
	config, dial := intercepted(t, "example.com", true)
	status, body, err := get(t, config, dial, false, "evil.example.net")
	if err != nil || status != http.StatusMisdirectedRequest || strings.Contains(body, "secret") {
		t.Errorf("%d %s: %v", status, body, err)
	}
}

func TestAFarEndThatIsNotVerifiedGetsNothing(t *testing.T) {
	config, dial := intercepted(t, "example.com", false)
	if status, body, err := get(t, config, dial, false, "example.com"); err == nil {
		t.Errorf("%d %s", status, body)
	}
}

func TestRequestsWithoutTheirSecretAreRefused(t *testing.T) {
	reached := false
	config, dial := interceptedTo(t, "example.com", true, func(http.ResponseWriter, *http.Request) { reached = true },
		map[string]string{netproxy.Incomplete: "secret KEY not found"})
	status, body, err := get(t, config, dial, false, "example.com")
	if err != nil || status != http.StatusBadGateway || !strings.Contains(body, "secret KEY not found") || reached {
		t.Errorf("%d %s: %v; the server was asked: %v", status, body, err, reached)
	}
}

// Some servers close a connection after a request or a pause. A client that keeps its own one alive must notice.
func TestAGuestsConnectionEndsWithTheFarOne(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/2": true, "HTTP/1": false} {
		t.Run(name, func(t *testing.T) {
			config, dial := interceptedTo(t, "example.com", true, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Connection", "close")
				io.WriteString(w, "answer")
			}, map[string]string{"authorization": "secret"})
			tr := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: h2,
				DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }}
			defer tr.CloseIdleConnections()
			for range 5 {
				r, err := (&http.Client{Transport: tr, Timeout: 10 * time.Second}).Get("https://example.com/")
				if err != nil {
					t.Fatal(err)
				}
				b, _ := io.ReadAll(r.Body)
				if r.Body.Close(); string(b) != "answer" {
					t.Fatalf("%s %s", r.Status, b)
				}
			}
		})
	}
}
