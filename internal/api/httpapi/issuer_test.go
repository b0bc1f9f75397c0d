package httpapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/domain/idtoken"
)

func newIssuer(t *testing.T) *idtoken.Issuer {
	t.Helper()
	s, err := idtoken.Open(idtoken.Config{URL: "https://id.example/forkd", Lifetime: idtoken.DefaultLifetime,
		Dir: filepath.Join(t.TempDir(), "identity")})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Relying parties have no key. They reach the two documents, and no other path.
func TestTheIssuersDocumentsNeedNoKey(t *testing.T) {
	issuer := newIssuer(t)
	b := newBenchWith(t, func(o *httpapi.Options) { o.Identity = issuer })
	h := b.server.Handler(auth.Access{Token: strings.Repeat("t", 32)})
	ask := func(method, path, key string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		h.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{idtoken.DiscoveryPath, idtoken.KeysPath} {
		for _, key := range []string{"", "wrong"} {
			w := ask("GET", path, key)
			if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" ||
				w.Header().Get("Cache-Control") != "public, max-age=300" || !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s: %d, %v, %s", path, w.Code, w.Header(), w.Body)
			}
			if strings.Contains(w.Body.String(), `"d"`) {
				t.Errorf("%s has a private key", path)
			}
		}
		if w := ask("POST", path, ""); w.Code != 405 {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
	var d idtoken.Discovery
	if err := json.Unmarshal(ask("GET", idtoken.DiscoveryPath, "").Body.Bytes(), &d); err != nil ||
		d.Issuer != "https://id.example/forkd" || d.Keys != "https://id.example/forkd/.well-known/jwks.json" {
		t.Errorf("discovery is %+v, %v", d, err)
	}
	for _, path := range []string{"/.well-known/", idtoken.KeysPath + "/", "/.well-known/../v1/sandboxes", "//.well-known/jwks.json",
		"/.well-known/keys.json", "/v1/sandboxes"} {
		if w := ask("GET", path, ""); w.Code != 401 {
			t.Errorf("%s: %d, want 401", path, w.Code)
		}
	}
}

func TestWithoutAnIssuerThereAreNoDocuments(t *testing.T) {
	b := newBench(t)
	if w := b.do("GET", idtoken.KeysPath, ""); w.Code != 404 {
		t.Errorf("status %d", w.Code)
	}
}

func TestIdentityIsAskedForAndShown(t *testing.T) {
	b := newBench(t)
	for text, want := range map[string]bool{`{"snapshot_tag":"py","identity":true}`: true, `{"snapshot_tag":"py"}`: false} {
		made := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", text), 201)
		got := into[api.SandboxInfo](t, b.do("GET", "/v1/sandboxes/"+made[0].ID, ""), 200)
		if made[0].Identity != want || got.Identity != want {
			t.Errorf("%s: %+v, then %+v", text, made[0], got)
		}
	}
}
