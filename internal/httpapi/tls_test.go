package httpapi_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/httpapi"
	"github.com/forkd/forkd/internal/tlscert"
)

// serveTLS runs a server with a certificate of its own, and returns its files too.
func serveTLS(t *testing.T) (l httpapi.Listener, files *tlscert.Files, dir string) {
	t.Helper()
	dir = t.TempDir()
	cert, key, err := tlscert.Made(dir)
	if err != nil {
		t.Fatal(err)
	}
	if files, err = tlscert.Open(cert, key, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	c, err := files.Config("")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	if l, err = (httpapi.Binding{Token: token, Keys: b.keys, TLS: c}).Listen(t.Context(), "tcp://0.0.0.0:0"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.server.Run(ctx, []httpapi.Listener{l}, 100*time.Millisecond) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l, files, dir
}

func clientOf(t *testing.T, l httpapi.Listener, fingerprint string) *client.Client {
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
		if _, err := clientOf(t, l, pin).ListSandboxes(t.Context()); err == nil {
			t.Errorf("%s fingerprint: it was trusted", name)
		}
	}
	for _, bad := range []client.Options{{URL: "https://x:1", Fingerprint: "abc"}, {URL: "http://x:1", Fingerprint: right}} {
		if _, err := client.New(bad); err == nil {
			t.Errorf("a client was made of %+v", bad)
		}
	}
	// What does not speak TLS gets nothing, and harms nobody.
	if _, _, err := exchangeRaw(l); err != nil {
		t.Error(err)
	}
	if _, err := clientOf(t, l, right).ListSandboxes(t.Context()); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// exchangeRaw speaks plain HTTP to a listener of TLS.
func exchangeRaw(l httpapi.Listener) (int, string, error) {
	d := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}}
	if c, err := d.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		return 0, "", os.ErrInvalid // too old to be let in
	}
	return 0, "", nil
}
