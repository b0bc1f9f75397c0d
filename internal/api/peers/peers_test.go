package peers

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The key goes to a peer only after its certificate was checked, and the client shows its own certificate.
func TestPeersOverTLS(t *testing.T) {
	var keys, certs atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer secret" {
			keys.Add(1)
		}
		certs.Add(int64(len(r.TLS.PeerCertificates)))
		w.WriteHeader(http.StatusNotFound)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	defer s.Close()
	ca := write(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	private, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	good := Config{Allow: []string{"127.0.0.0/8"}, KeyFile: write(t, "key", []byte("secret\n")), CAFile: ca,
		ServerName: "example.com", CertFile: ca,
		CertKeyFile: write(t, "tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))}
	for name, change := range map[string]func(*Config){
		"of the authority": func(*Config) {},
		"another name":     func(c *Config) { c.ServerName = "forkd-node" },
		"no authority":     func(c *Config) { c.CAFile = "" },
	} {
		keys.Store(0)
		certs.Store(0)
		conf := good
		change(&conf)
		c, err := New(conf)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Open(t.Context(), []string{s.URL}, "py", "")
		trusted := name == "of the authority"
		if err == nil || strings.Contains(err.Error(), "no peer has") != trusted || (keys.Load() == 1) != trusted {
			t.Errorf("%s: %d keys, %v", name, keys.Load(), err)
		}
		if trusted && certs.Load() != 1 {
			t.Error("the client showed no certificate")
		}
	}
}

func TestConfigsThatAreRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"a URL":                {Allow: []string{"https://a"}},
		"a port":               {Allow: []string{"a:1"}},
		"an empty name":        {Allow: []string{""}},
		"a CA without text":    {CAFile: write(t, "ca", []byte("x"))},
		"a CA that is missing": {CAFile: "/nonexistent/ca"},
		"half a certificate":   {CertFile: write(t, "crt", []byte("x")), CertKeyFile: "/nonexistent/key"},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// A URL of a request leads to allowed hosts only.
func FuzzPeerURL(f *testing.F) {
	for _, s := range []string{"https://10.0.0.1:8889", "https://node-b", "https://10.0.0.1@evil", "https://[::ffff:10.0.0.1]",
		"https://10.0.0.1#@evil", "https://node-b.evil", "https:node-b", "https://[fe80::1%25eth0]:1"} {
		f.Add(s)
	}
	c, err := New(Config{Allow: []string{"10.0.0.0/8", "node-b"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := c.peerOf(s)
		if err != nil {
			return
		}
		host := strings.ToLower(u.Hostname())
		if u.Scheme != "https" || u.User != nil || u.Path != "" ||
			host != "node-b" && !strings.HasPrefix(host, "10.") && !strings.HasPrefix(host, "::ffff:") {
			t.Errorf("%q leads to %s", s, u)
		}
		if _, err := http.NewRequest(http.MethodGet, u.String(), nil); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	})
}

// The offset in an answer is compared, whatever a peer sends.
func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"bytes 5-9/10", "bytes 5", "5-", "bytes -5-9/10", "bytes */10"} {
		f.Add(s, int64(5))
	}
	f.Fuzz(func(t *testing.T, s string, at int64) {
		ok := begins(&http.Response{Header: http.Header{"Content-Range": {s}}}, at)
		if ok && (at < 0 || !strings.Contains(s, "-")) {
			t.Errorf("%q begins at %d", s, at)
		}
	})
}
