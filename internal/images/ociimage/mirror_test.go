package ociimage

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A mirror that fails in some way leaves the pull to the registry. A good one is asked alone for blobs.
func TestMirrors(t *testing.T) {
	fails := func(status int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true }
	}
	blobs := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
	}
	for _, c := range []struct {
		name string
		lie  func(w http.ResponseWriter, r *http.Request) bool
		used bool // the mirror alone sends the blobs
	}{
		{"good", nil, true},
		{"nothing there", fails(http.StatusNotFound), false},
		{"denied", fails(http.StatusForbidden), false},
		{"broken", fails(http.StatusBadGateway), false},
		{"busy", fails(http.StatusTooManyRequests), false},
		{"no blobs", func(w http.ResponseWriter, r *http.Request) bool {
			if blobs(r) {
				w.WriteHeader(http.StatusNotFound)
			}
			return blobs(r)
		}, false},
		{"wrong blobs", func(w http.ResponseWriter, r *http.Request) bool {
			if blobs(r) {
				_, _ = w.Write([]byte("wrong"))
			}
			return blobs(r)
		}, false},
		{"endless blobs", func(w http.ResponseWriter, r *http.Request) bool {
			if blobs(r) {
				_, _ = w.Write(make([]byte, 1<<20))
			}
			return blobs(r)
		}, false},
		{"cut blobs", func(w http.ResponseWriter, r *http.Request) bool {
			if blobs(r) {
				w.Header().Set("Content-Length", "100000")
				_, _ = w.Write([]byte("a"))
			}
			return blobs(r)
		}, false},
		{"wrong manifests", func(w http.ResponseWriter, r *http.Request) bool {
			at := strings.Contains(r.URL.Path, "/manifests/sha256:")
			if at {
				_, _ = w.Write([]byte("{}"))
			}
			return at
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry, mirror := newBench(t), newBench(t)
			img := imageOf(t, v1.Config{}, tarOf(t, "a", "b/c"), tarOf(t, "d"))
			digest, err := img.Digest()
			if err != nil {
				t.Fatal(err)
			}
			ref := registry.push("1", img)
			mirror.push("1", img)
			mirror.lie = c.lie
			registry.gets.Store(0)
			for _, ref := range []string{ref, registry.host + "/team/app@" + digest.String()} {
				got, err := pullWith(t, ref, "http://"+mirror.host)
				if err != nil {
					t.Fatalf("%s: %v", ref, err)
				}
				if got.Digest != digest || got.Source != ref {
					t.Errorf("%s has the digest %s, source %s", ref, got.Digest, got.Source)
				}
			}
			if only := registry.gets.Load() == 0; only != c.used {
				t.Errorf("the mirror alone sent blobs: %v, want %v", only, c.used)
			}
		})
	}
}

// pullWith pulls an image into a new cache.
func pullWith(t *testing.T, ref string, mirrors ...string) (*Image, error) {
	t.Helper()
	cache, err := OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	img, err := Resolve(t.Context(), Pull{Ref: ref, Cache: cache, Wait: time.Millisecond, Mirrors: mirrors,
		Keychain: authn.NewMultiKeychain()})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { img.Close() })
	return img, img.Fetch(t.Context(), func(_, _ int64) {})
}

func TestAMirrorsPrefixAndAnUnreachableMirror(t *testing.T) {
	registry, mirror := newBench(t), newBench(t)
	img := imageOf(t, v1.Config{}, tarOf(t, "a"))
	ref := registry.push("1", img)
	asked := ""
	mirror.lie = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			asked = r.URL.Path
		}
		return false
	}
	if _, err := pullWith(t, ref, "http://127.0.0.1:1", "http://"+mirror.host+"/proxy/"); err != nil {
		t.Fatal(err)
	}
	if asked != "/v2/proxy/team/app/manifests/1" {
		t.Errorf("the mirror was asked for %q", asked)
	}
}

func TestMirrorsKeepNoCredentialsOfTheRegistry(t *testing.T) {
	registry, mirror := newBench(t), newBench(t)
	ref := registry.push("1", imageOf(t, v1.Config{}, tarOf(t, "a")))
	mirror.lie = func(w http.ResponseWriter, r *http.Request) bool {
		if user, _, ok := r.BasicAuth(); ok {
			t.Errorf("the mirror got the credentials of %s", user)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	cache, err := OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	img, err := Resolve(t.Context(), Pull{Ref: ref, Cache: cache, Wait: time.Millisecond,
		Mirrors: []string{"http://" + mirror.host}, Keychain: onlyFor{registry.host}})
	if err != nil {
		t.Fatal(err)
	}
	img.Close()
}

// onlyFor has credentials for one host.
type onlyFor struct{ host string }

func (k onlyFor) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if r.RegistryStr() != k.host {
		return authn.Anonymous, nil
	}
	return &authn.Basic{Username: "user", Password: "secret"}, nil
}

func TestCheckMirror(t *testing.T) {
	for _, good := range []string{"https://m.example.com", "http://10.0.0.1:5000", "https://m.example.com/a/b/"} {
		if err := CheckMirror(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "m.example.com", "ftp://m", "https://", "https://u:p@m", "https://m?x=1", "https://m/A B"} {
		if err := CheckMirror(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
