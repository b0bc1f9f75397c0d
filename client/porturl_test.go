package client_test

import (
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestPortURL(t *testing.T) {
	for name, tc := range map[string]struct{ url, domain, want string }{
		"TCP":                  {"tcp://127.0.0.1:8889", "forkd.localhost", "http://{port}-sb1.forkd.localhost:8889/"},
		"by name":              {"http://localhost:41234/", "forkd.localhost", "http://{port}-sb1.forkd.localhost:41234/"},
		"IPv6":                 {"http://[::1]:8889", "forkd.localhost", "http://{port}-sb1.forkd.localhost:8889/"},
		"a proxy in front":     {"https://api.example.com", "sb.example.com", "https://{port}-sb1.sb.example.com/"},
		"another host":         {"http://192.0.2.1:8889", "forkd.localhost", ""},
		"a Unix socket":        {"unix:///run/forkd/forkd.sock", "forkd.localhost", ""},
		"a daemon without one": {"http://127.0.0.1:8889", "", ""},
	} {
		if got := client.PortURL(tc.url, api.VersionInfo{Domain: tc.domain}, api.SandboxInfo{DNSID: "sb1"}); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
