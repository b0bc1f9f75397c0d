package endpoint

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// TLS settings from the environment apply only to a daemon at https://. Flags take precedence.
func TestWhatTLSIsSpokenWith(t *testing.T) {
	t.Setenv("FORKD_TLS_FINGERPRINT", "pin")
	t.Setenv("FORKD_TLS_CLIENT_CERT", "cert")
	t.Setenv("FORKD_TLS_CLIENT_KEY", "key")
	for name, row := range map[string]struct {
		flags Flags
		url   string
		want  client.Options
	}{
		"the environment":   {Flags{}, "https://x", client.Options{Fingerprint: "pin", ClientCert: "cert", ClientKey: "key"}},
		"without TLS":       {Flags{}, "unix:///x", client.Options{}},
		"flags":             {Flags{Fingerprint: "p", Cert: "c", Key: "k"}, "https://x", client.Options{Fingerprint: "p", ClientCert: "c", ClientKey: "k"}},
		"one flag":          {Flags{Cert: "c"}, "https://x", client.Options{Fingerprint: "pin", ClientCert: "c"}},
		"flags without TLS": {Flags{Cert: "c", Key: "k"}, "http://x", client.Options{ClientCert: "c", ClientKey: "k"}},
	} {
		got := client.Options{URL: row.url}
		row.want.URL = row.url
		if row.flags.secure(&got); got.Fingerprint != row.want.Fingerprint || got.ClientCert != row.want.ClientCert ||
			got.ClientKey != row.want.ClientKey {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
}

// Read-only calls wait for a restarting daemon of a machine. Other calls do not, because they may
// have been done.
func TestCallsThatChangeNothingWaitForARestart(t *testing.T) {
	var broken atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Add(-1) >= 0 {
			panic(http.ErrAbortHandler) // QEMU accepts, but the daemon does not run
		}
		fmt.Fprint(w, "[]")
	}))
	defer s.Close()
	var told notes
	c, err := client.New(client.Options{URL: s.URL, Retry: untilItRuns(told.add, time.Minute/10)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	broken.Store(3)
	if _, err := c.ListSandboxes(t.Context()); err != nil || len(told) != 1 || !strings.Contains(told[0], "trying for 6s") {
		t.Errorf("got %v, told %q", err, told)
	}
	broken.Store(1)
	if err := c.Kill(t.Context(), "sb-1"); err == nil || broken.Load() != 0 {
		t.Errorf("a call that changes something: %v, %d are left", err, broken.Load())
	}
	broken.Store(1 << 30)
	short, err := client.New(client.Options{URL: s.URL, Retry: untilItRuns(told.add, 50*time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	if _, err := short.ListSandboxes(t.Context()); !client.IsUnreachable(err) && client.CodeOf(err) != api.CodeBroken {
		t.Errorf("a daemon that does not come: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if untilItRuns(told.add, time.Minute)(ctx, context.Canceled) {
		t.Error("it goes on after an interruption")
	}
}
