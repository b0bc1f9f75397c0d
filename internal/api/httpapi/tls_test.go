package httpapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/api/tlscert"
)

// serveTLS runs a server with its own certificate, and returns the files too.
func serveTLS(t *testing.T, clientCA ...string) (l listen.Listener, files *tlscert.Files, dir string) {
	t.Helper()
	dir = t.TempDir()
	cert, key, err := tlscert.Made(dir)
	if err != nil {
		t.Fatal(err)
	}
	if files, err = tlscert.Open(cert, key, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	c, err := files.Config(strings.Join(clientCA, ""))
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	if l, err = (listen.Binding{Token: token, Keys: b.keys, TLS: c}).Listen(t.Context(), "tcp://0.0.0.0:0"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.server.Run(ctx, []listen.Listener{l}, 100*time.Millisecond) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l, files, dir
}

func clientOf(t *testing.T, l listen.Listener, fingerprint string) *client.Client {
	t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(l.URL, "https://["), "]:")
	if port == "" {
		_, port, _ = strings.Cut(strings.TrimPrefix(l.URL, "https://"), ":")
	}
	c, err := client.New(client.Options{URL: "https://127.0.0.1:" + port, Token: token, Fingerprint: fingerprint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestACertificateIsPinned(t *testing.T) {
	l, files, _ := serveTLS(t)
	right := files.Fingerprint()
	if _, err := clientOf(t, l, right).ListSandboxes(t.Context()); err != nil {
		t.Errorf("with the fingerprint: %v", err)
	}
	if _, err := clientOf(t, l, "sha256:"+strings.ToUpper(right)).ListSandboxes(t.Context()); err != nil {
		t.Errorf("written otherwise: %v", err)
	}
	for name, pin := range map[string]string{"another": strings.Repeat("00", 32), "none": ""} {
		_, err := clientOf(t, l, pin).ListSandboxes(t.Context())
		if client.ReasonOf(err) != api.ReasonTLSUntrusted || !client.IsUnreachable(err) {
			t.Errorf("%s fingerprint: %v", name, err)
		}
		// The request was not sent, and the error does not suggest that it may have been done.
		if err := clientOf(t, l, pin).Kill(t.Context(), "sb-1"); client.ReasonOf(err) != api.ReasonTLSUntrusted {
			t.Errorf("%s fingerprint, a change: %v", name, err)
		}
	}
	for _, bad := range []client.Options{{URL: "https://x:1", Fingerprint: "abc"}, {URL: "http://x:1", Fingerprint: right}} {
		if _, err := client.New(bad); err == nil {
			t.Errorf("a client was made of %+v", bad)
		}
	}
	// A client without TLS gets no answer, and does no harm.
	if _, _, err := exchangeRaw(l); err != nil {
		t.Error(err)
	}
	if _, err := clientOf(t, l, right).ListSandboxes(t.Context()); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// exchangeRaw sends plain HTTP to a TLS listener.
func exchangeRaw(l listen.Listener) (int, string, error) {
	d := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}}
	if c, err := d.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		return 0, "", os.ErrInvalid // too old to be accepted
	}
	return 0, "", nil
}

// h2 is a client that uses only HTTP/2 over TLS.
func h2(t *testing.T, change func(*tls.Config)) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP2(true)
	if change != nil {
		change(tr.TLSClientConfig)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

func TestHTTP2OverTLS(t *testing.T) {
	l, _, _ := serveTLS(t)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := h2(t, nil)
	send := func(method, path, body, auth string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "https://127.0.0.1:"+port+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+auth)
		resp, err := c.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if resp.Proto != "HTTP/2.0" || err != nil {
			t.Errorf("%s %s: %s, %v", method, path, resp.Proto, err)
		}
		return resp.StatusCode, string(b)
	}
	for _, row := range []struct {
		method, path, body, auth string
		status                   int
	}{
		{"GET", "/v1/sandboxes", "", token, 200},
		{"POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":2}`, token, 201},
		{"POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`, "wrong", 401},
		{"POST", "/v1/sandboxes", strings.Repeat("x", 1<<20), "wrong", 401}, // and its body is not read whole
		{"POST", "/v1/sandboxes", strings.Repeat(" ", 2<<20), token, 400},   // it is not JSON
		{"GET", "/v1/none", "", token, 404},
		{"POST", "/v1/sandboxes/sb-00000001-0001/ports/80/connect", "", token, 400}, // no upgrade requested
		{"POST", "/v1/sandboxes/sb-00000001-0001/ping", "", token, 200},
	} {
		if status, body := send(row.method, row.path, row.body, row.auth); status != row.status {
			t.Errorf("%s %s: %d, want %d: %.200s", row.method, row.path, status, row.status, body)
		}
	}
	var wg sync.WaitGroup
	for range 50 { // concurrently, over one connection
		wg.Go(func() {
			if status, body := send("GET", "/v1/sandboxes", "", token); status != 200 || !strings.Contains(body, "sb-00000001-0002") {
				t.Errorf("%d %.100s", status, body)
			}
		})
	}
	wg.Wait()
	// HTTP/1.1 clients still work.
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("https://127.0.0.1:" + port + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Proto != "HTTP/1.1" || resp.StatusCode != 200 {
		t.Errorf("%s %s", resp.Proto, resp.Status)
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

// client returns a client certificate that is valid until a time.
func (a authority) client(t *testing.T, until time.Time, use x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "client"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, about, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// With --tls-client-ca every request requires an accepted certificate, and also a token.
func TestCertificatesOfClients(t *testing.T) {
	wanted, other := newAuthority(t, "wanted"), newAuthority(t, "wanted") // with the same name
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: wanted.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	l, _, _ := serveTLS(t, file)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	for name, row := range map[string]struct {
		certs []tls.Certificate
		in    bool
	}{
		"wanted":              {[]tls.Certificate{wanted.client(t, later, x509.ExtKeyUsageClientAuth)}, true},
		"missing":             {nil, false},
		"of another":          {[]tls.Certificate{other.client(t, later, x509.ExtKeyUsageClientAuth)}, false},
		"expired":             {[]tls.Certificate{wanted.client(t, time.Now().Add(-time.Hour), x509.ExtKeyUsageClientAuth)}, false},
		"not for clients":     {[]tls.Certificate{wanted.client(t, later, x509.ExtKeyUsageServerAuth)}, false},
		"the authority's own": {[]tls.Certificate{{Certificate: [][]byte{other.cert.Raw}, PrivateKey: other.key}}, false},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			c := h2(t, func(c *tls.Config) {
				c.MaxVersion = version
				c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // whatever is requested
					if len(row.certs) == 0 {
						return new(tls.Certificate), nil
					}
					return &row.certs[0], nil
				}
			})
			for _, auth := range []string{token, ""} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+"/v1/sandboxes", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+auth)
				resp, err := c.Do(r)
				switch {
				case err == nil:
					resp.Body.Close()
					if !row.in || (resp.StatusCode == 200) != (auth == token) {
						t.Errorf("%s: %s", name, resp.Status)
					}
				case row.in:
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// The Go client sends the certificate of its files, and reports why the daemon refuses one.
func TestAClientShowsItsCertificate(t *testing.T) {
	wanted, other := newAuthority(t, "wanted"), newAuthority(t, "wanted")
	file := filepath.Join(t.TempDir(), "ca.pem")
	writePEM(t, file, "CERTIFICATE", wanted.cert.Raw)
	l, files, _ := serveTLS(t, file)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	opt := client.Options{URL: "https://127.0.0.1:" + port, Token: token, Fingerprint: files.Fingerprint()}
	for name, row := range map[string]struct {
		by *authority
		is api.Reason
	}{"wanted": {&wanted, ""}, "of another": {&other, api.ReasonTLSClientCertificate}, "none": {nil, api.ReasonTLSClientCertificate}} {
		opt.ClientCert, opt.ClientKey = "", ""
		if row.by != nil {
			opt.ClientCert, opt.ClientKey = row.by.files(t)
		}
		c, err := client.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		_, list := c.ListSandboxes(t.Context())
		kill := c.Kill(t.Context(), "sb-none")
		c.Close()
		if row.is == "" && list != nil || client.ReasonOf(list) != row.is {
			t.Errorf("%s: %v", name, list)
		}
		if row.is != "" && client.ReasonOf(kill) != row.is || row.is == "" && !client.IsNotFound(kill) {
			t.Errorf("%s, a change: %v", name, kill)
		}
	}
	cert, key := wanted.files(t)
	for name, bad := range map[string]client.Options{
		"no key":         {URL: opt.URL, ClientCert: cert},
		"no certificate": {URL: opt.URL, ClientKey: key},
		"no such file":   {URL: opt.URL, ClientCert: cert + "-none", ClientKey: key},
		"another's key":  {URL: opt.URL, ClientCert: cert, ClientKey: cert},
		"no TLS":         {URL: "http://127.0.0.1:1", ClientCert: cert, ClientKey: key},
	} {
		if _, err := client.New(bad); err == nil {
			t.Errorf("%s: a client was made", name)
		}
	}
}

// A URL with the other scheme gets an explanation from either end.
func TestASchemeThatIsTheOther(t *testing.T) {
	l, _, _ := serveTLS(t)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for _, url := range []string{"http://127.0.0.1:" + port, "https" + strings.TrimPrefix(plain.URL, "http")} {
		c, err := client.New(client.Options{URL: url, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // one connection each
			if _, err := c.ListSandboxes(t.Context()); client.ReasonOf(err) != api.ReasonTLSScheme {
				t.Errorf("%s: %v", url, err)
			}
			if err := c.Kill(t.Context(), "sb-1"); client.ReasonOf(err) != api.ReasonTLSScheme {
				t.Errorf("%s: a change: %v", url, err)
			}
		}
		c.Close()
	}
}

// files returns a client's certificate and its key as files.
func (a authority) files(t *testing.T) (cert, key string) {
	t.Helper()
	c := a.client(t, time.Now().Add(time.Hour), x509.ExtKeyUsageClientAuth)
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, cert, "CERTIFICATE", c.Certificate[0])
	writePEM(t, key, "PRIVATE KEY", der)
	return cert, key
}

func writePEM(t *testing.T, file, what string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: what, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
