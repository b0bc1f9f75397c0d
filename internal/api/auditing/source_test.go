package auditing

import (
	"net/http/httptest"
	"testing"

	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/sys/peercred"
)

func TestSources(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:1234":                 "192.0.2.7",
		"[::ffff:192.0.2.7]:1234":        "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6%eth0]:80": "2001:db8:1:2::/64",
		"@":                              "",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = address
		if got := Source(r); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "@"
	if got := Source(r.WithContext(auth.WithPeer(r.Context(), peercred.Peer{UID: 1000}))); got != "uid 1000" {
		t.Errorf("over a Unix socket: %q", got)
	}
}
