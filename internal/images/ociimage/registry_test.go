package ociimage

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// bench is a registry behind a handler that may lie.
type bench struct {
	t     *testing.T
	real  http.Handler
	lie   func(w http.ResponseWriter, r *http.Request) bool // reports whether it answered
	host  string
	cache string
	gets  atomic.Int32 // of blobs
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, real: server.New(server.Logger(log.New(io.Discard, "", 0))), cache: t.TempDir()}
	s := httptest.NewServer(b)
	t.Cleanup(s.Close)
	b.host = strings.TrimPrefix(s.URL, "http://")
	return b
}

func (b *bench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
		b.gets.Add(1)
	}
	if b.lie == nil || !b.lie(w, r) {
		b.real.ServeHTTP(w, r)
	}
}

func (b *bench) push(tag string, img remote.Taggable) string {
	b.t.Helper()
	ref, err := name.ParseReference(b.host + "/team/app:" + tag)
	if err == nil {
		switch i := img.(type) {
		case v1.Image:
			err = remote.Write(ref, i)
		case v1.ImageIndex:
			err = remote.WriteIndex(ref, i)
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return ref.Name()
}

func (b *bench) resolve(ref string) (*Image, error) {
	cache, err := OpenCache(b.cache)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { cache.Close() })
	return Resolve(b.t.Context(), Pull{Ref: ref, Cache: cache, Wait: time.Millisecond, Keychain: authn.NewMultiKeychain()})
}

// pull returns the tree of an image, in short form.
func (b *bench) pull(ref string) (string, error) {
	img, err := b.resolve(ref)
	if err == nil {
		err = img.Fetch(b.t.Context(), func(done, total int64) {
			if done < 0 || done > total {
				b.t.Errorf("progress %d of %d", done, total)
			}
		})
	}
	if err != nil {
		return "", err
	}
	r, err := root(b.t, img)
	if err != nil {
		return "", err
	}
	return list(b.t, r), nil
}

func (b *bench) blobs() int {
	all, err := os.ReadDir(filepath.Join(b.cache, "sha256"))
	if err != nil {
		b.t.Fatal(err)
	}
	return len(all)
}

func big(n int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), n/16) }

func TestPull(t *testing.T) {
	b := newBench(t)
	img := imageOf(t, v1.Config{Cmd: []string{"/a"}}, tarOf(t, "a=1"), tarOf(t, "b=2"), tarOf(t, "b=2"))
	ref := b.push("1", img)
	got, err := b.pull(ref)
	if err != nil || got != "a=1 b=2" {
		t.Fatalf("%q %v", got, err)
	}
	want, _ := img.Digest()
	resolved, err := b.resolve(b.host + "/team/app@" + want.String())
	if err != nil || resolved.Digest != want || resolved.Config.Cmd[0] != "/a" {
		t.Errorf("%+v %v", resolved, err)
	}
	if n := b.blobs(); n != 2 {
		t.Errorf("%d blobs in the cache, want 2: equal layers are one", n)
	}
	before := b.gets.Load()
	if _, err := b.pull(ref); err != nil || b.gets.Load() != before+1 {
		t.Errorf("a second pull reads %d blobs, want the configuration only; %v", b.gets.Load()-before, err)
	}
	if _, err := b.pull(b.host + "/team/app:none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing tag: %v", err)
	}
}

func TestPlatforms(t *testing.T) {
	b := newBench(t)
	image := func(arch string) v1.Image {
		img, err := mutate.ConfigFile(imageOf(t, v1.Config{}, tarOf(t, "arch="+arch)), &v1.ConfigFile{
			OS: "linux", Architecture: arch, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{digestOf(tarOf(t, "arch="+arch))}}})
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	index := func(archs ...string) v1.ImageIndex {
		var i v1.ImageIndex = empty.Index
		for _, a := range archs {
			i = mutate.AppendManifests(i, mutate.IndexAddendum{Add: image(a),
				Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: a}}})
		}
		return i
	}
	if got, err := b.pull(b.push("many", index("arm64", "amd64", "s390x"))); err != nil || got != "arch=amd64" {
		t.Errorf("%q %v", got, err)
	}
	_, err := b.pull(b.push("arm", index("s390x", "arm64")))
	if !errors.Is(err, ErrPlatform) || !strings.Contains(err.Error(), "linux/arm64, linux/s390x") {
		t.Errorf("only others: %v", err)
	}
	_, err = b.pull(b.push("single", image("riscv64")))
	if !errors.Is(err, ErrPlatform) || !strings.Contains(err.Error(), "linux/riscv64") {
		t.Errorf("a single image: %v", err)
	}
	nested := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index("amd64"),
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	if got, err := b.pull(b.push("nested", nested)); err != nil || got != "arch=amd64" {
		t.Errorf("nested: %q %v", got, err)
	}
}

// isLayer reports whether a request is for a blob of at least 100 KB.
func (b *bench) isLayer(r *http.Request) ([]byte, bool) {
	if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/sha256:") {
		return nil, false
	}
	w := httptest.NewRecorder()
	plain := r.Clone(context.Background())
	plain.Header.Del("Range")
	b.real.ServeHTTP(w, plain)
	return w.Body.Bytes(), w.Body.Len() > 100_000
}

// Each row is a registry that fails in a way that a client survives.
func TestPullSurvives(t *testing.T) {
	var n atomic.Int32
	for name, lie := range map[string]func(b *bench, w http.ResponseWriter, r *http.Request) bool{
		"429 with a time": func(_ *bench, w http.ResponseWriter, r *http.Request) bool {
			if n.Add(1)%3 == 0 {
				return false
			}
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		},
		"503 now and then": func(_ *bench, w http.ResponseWriter, r *http.Request) bool {
			if n.Add(1)%2 == 0 {
				return false
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		},
		"cut connections with ranges": func(b *bench, w http.ResponseWriter, r *http.Request) bool {
			data, is := b.isLayer(r)
			if !is {
				return false
			}
			at := 0
			if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &at); err == nil {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(data)-1, len(data)))
				w.Header().Set("Content-Length", fmt.Sprint(len(data)-at))
				w.WriteHeader(http.StatusPartialContent)
			} else {
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			}
			w.Write(data[at:min(at+30_000, len(data))])
			return true // the server cuts a short answer
		},
		"one cut connection without ranges": func(b *bench, w http.ResponseWriter, r *http.Request) bool {
			data, is := b.isLayer(r)
			if is && n.Add(1) == 1 {
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				w.Write(data[:50_000])
				return true
			}
			r.Header.Del("Range")
			return false
		},
		"a range from another byte": func(b *bench, w http.ResponseWriter, r *http.Request) bool {
			data, is := b.isLayer(r)
			switch {
			case is && n.Add(1) == 1:
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				w.Write(data[:50_000])
			case is && r.Header.Get("Range") != "":
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(data)-1, len(data)))
				w.WriteHeader(http.StatusPartialContent)
				w.Write(data)
			default:
				return false
			}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			ref := b.push("1", imageOf(t, v1.Config{}, tarOf(t, "f="+string(big(200_000)))))
			n.Store(0)
			b.lie = func(w http.ResponseWriter, r *http.Request) bool { return lie(b, w, r) }
			got, err := b.pull(ref)
			if err != nil || len(got) != 200_002 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// Each row is a registry that lies. The cache must not have a wrong blob afterwards, and an honest registry helps.
func TestPullRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		lie  func(b *bench, w http.ResponseWriter, r *http.Request) bool
		want error
	}{
		"a wrong blob": {func(b *bench, w http.ResponseWriter, r *http.Request) bool {
			data, is := b.isLayer(r)
			if is {
				w.Write(bytes.ToUpper(data))
			}
			return is
		}, ErrInvalid},
		"an endless blob": {func(b *bench, w http.ResponseWriter, r *http.Request) bool {
			_, is := b.isLayer(r)
			for is {
				if _, err := w.Write(big(65536)); err != nil {
					return true
				}
			}
			return false
		}, ErrInvalid},
		"a short blob": {func(b *bench, w http.ResponseWriter, r *http.Request) bool {
			data, is := b.isLayer(r)
			if is {
				w.Write(data[:1000])
			}
			return is
		}, ErrRegistry},
		"500 for ever": {func(_ *bench, w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}, ErrRegistry},
		"an endless manifest": {func(_ *bench, w http.ResponseWriter, r *http.Request) bool {
			is := strings.Contains(r.URL.Path, "/manifests/")
			for is {
				if _, err := w.Write(big(65536)); err != nil {
					return true
				}
			}
			return false
		}, ErrInvalid},
		"HTML": {func(_ *bench, w http.ResponseWriter, r *http.Request) bool {
			is := strings.Contains(r.URL.Path, "/manifests/")
			if is {
				io.WriteString(w, "<html>")
			}
			return is
		}, ErrInvalid},
		"a redirect for ever": {func(_ *bench, w http.ResponseWriter, r *http.Request) bool {
			is := strings.Contains(r.URL.Path, "/blobs/")
			if is {
				http.Redirect(w, r, r.URL.Path, http.StatusFound)
			}
			return is
		}, errRedirect},
		"401": {func(_ *bench, w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}, ErrRegistry},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			ref := b.push("1", imageOf(t, v1.Config{}, tarOf(t, "f="+string(big(200_000)))))
			b.lie = func(w http.ResponseWriter, r *http.Request) bool { return row.lie(b, w, r) }
			if _, err := b.pull(ref); !errors.Is(err, row.want) {
				t.Errorf("error is %v, want %v", err, row.want)
			}
			if n := b.blobs(); n != 0 {
				t.Errorf("%d blobs in the cache", n)
			}
			b.lie = nil
			if got, err := b.pull(ref); err != nil || len(got) != 200_002 {
				t.Errorf("afterwards: %d bytes, %v", len(got), err)
			}
		})
	}
}

// Credentials go to the registry, and not to a server that it leads to.
func TestCredentialsStayWithTheRegistry(t *testing.T) {
	b := newBench(t)
	ref := b.push("1", imageOf(t, v1.Config{}, tarOf(t, "f="+string(big(200_000)))))
	var leaked atomic.Value
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked.Store("asked " + r.Header.Get("Authorization"))
		b.real.ServeHTTP(w, r)
	}))
	t.Cleanup(other.Close)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:secret"))
	b.lie = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != want {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if _, is := b.isLayer(r); is {
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+r.URL.Path+"?signature=hidden", http.StatusFound)
			return true
		}
		return false
	}
	cache, err := OpenCache(b.cache)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	config := filepath.Join(t.TempDir(), "config.json")
	auth := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, b.host, base64.StdEncoding.EncodeToString([]byte("ann:secret")))
	if err := os.WriteFile(config, []byte(auth), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", filepath.Dir(config))
	img, err := Resolve(t.Context(), Pull{Ref: ref, Cache: cache, Wait: time.Millisecond})
	if err == nil {
		err = img.Fetch(t.Context(), func(int64, int64) {})
	}
	if err != nil || leaked.Load() != "asked " {
		t.Errorf("%v, %q", err, leaked.Load())
	}
	other.Close()
	if err := os.RemoveAll(filepath.Join(b.cache, "sha256")); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(filepath.Join(b.cache, "sha256"), 0o755)
	err = img.Fetch(t.Context(), func(int64, int64) {})
	if err == nil || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "secret") {
		t.Errorf("an error without secrets: %v", err)
	}
}

func TestAPublicRegistryCannotLeadToPrivateAddresses(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	address := strings.TrimPrefix(s.URL, "http://")
	g := &guard{host: "registry.example"}
	if _, err := g.dial(t.Context(), "tcp", address); !errors.Is(err, errAddress) {
		t.Errorf("error is %v", err)
	}
	own := &guard{host: "127.0.0.1"}
	for range 2 {
		c, err := own.dial(t.Context(), "tcp", strings.Replace(address, "localhost", "127.0.0.1", 1))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if !own.private.Load() {
		t.Error("a registry of this host is not private")
	}
	down, _ := http.NewRequest(http.MethodGet, "http://other.example/x", nil)
	up, _ := http.NewRequest(http.MethodGet, "https://registry.example/x", nil)
	if err := checkRedirect(down, []*http.Request{up}); !errors.Is(err, errRedirect) {
		t.Errorf("a redirect to http: %v", err)
	}
}

func TestCancelEndsAPull(t *testing.T) {
	b := newBench(t)
	ref := b.push("1", imageOf(t, v1.Config{}, tarOf(t, "f="+string(big(200_000)))))
	img, err := b.resolve(ref)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.lie = func(w http.ResponseWriter, r *http.Request) bool {
		cancel()
		<-r.Context().Done()
		return true
	}
	if err := img.Fetch(ctx, func(int64, int64) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestOldBlobsAreCollected(t *testing.T) {
	dir := t.TempDir()
	c, err := OpenCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-blobAge - time.Hour)
	for _, f := range []string{"sha256/old", "partial/old", "sha256/new"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, "old") {
			os.Chtimes(filepath.Join(dir, f), old, old)
		}
	}
	count := func() int {
		a, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		return len(a)
	}
	if second, err := OpenCache(dir); err != nil || count() != 3 {
		t.Errorf("%d files while the cache is in use, want 3; %v", count(), err)
	} else {
		second.Close()
	}
	c.Close()
	if third, err := OpenCache(dir); err != nil || count() != 1 {
		t.Errorf("%d files, want 1; %v", count(), err)
	} else {
		third.Close()
	}
}
