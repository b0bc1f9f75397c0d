//go:build linux

package e2bcheck

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/e2btest"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/ingress"
)

const key = "e2b_0123456789abcdef0123456789abcdef01234567"

// serve returns a server of E2B's API without VMs.
func serve(t *testing.T) *httptest.Server {
	t.Helper()
	store, _, err := records.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	engine := e2btest.New(t, "base")
	s := httptest.NewServer(e2btest.Serve(e2bapi.New(e2bapi.Options{
		Engine: engine, Records: store, Lives: engine, Domain: ingress.DefaultDomain,
		Ports: ingress.New(ingress.Config{Domain: ingress.DefaultDomain, Dialer: engine, Guard: engine}),
		Authenticate: func(r *http.Request) (context.Context, error) {
			if r.Header.Get("X-Api-Key") != key {
				return nil, errors.New("the key is wrong")
			}
			return r.Context(), nil
		},
	})))
	t.Cleanup(s.Close)
	return s
}

// Package test/e2b has the packages and tests them.
func TestTheWireIsTried(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s := serve(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, c := range []struct{ what, key, url, template, says string }{
		{"a daemon that is well", key, s.URL, "base", ""},
		{"a wrong key", "e2b_no", s.URL, "base", "401"},
		{"a template that is not there", key, s.URL, "none", "none"},
		{"no daemon", key, gone.URL, "base", "refused"},
	} {
		all := Run(t.Context(), Options{Key: c.key, API: c.url, Sandbox: c.url, Template: c.template})
		if len(all) != 3 || all[0].Installed || all[1].Installed {
			t.Fatalf("%s: %+v", c.what, all)
		}
		if r := all[2]; r.Client != "wire" || r.OK != (c.says == "") || !strings.Contains(r.Error, c.says) {
			t.Errorf("%s: %+v", c.what, r)
		}
	}
}
