package ociimage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func isUpload(r *http.Request) bool {
	return r.Method == http.MethodPatch || r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/")
}

// Each row is a registry that fails in a way that a push survives.
func TestPushSurvives(t *testing.T) {
	var n atomic.Int32
	status := func(code, each int, header ...string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			if n.Add(1)%int32(each) != 0 {
				return false
			}
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			return true
		}
	}
	for name, lie := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"503 now and then":   status(503, 4),
		"429 without a time": status(429, 4),
		"502 for uploads": func(w http.ResponseWriter, r *http.Request) bool {
			return isUpload(r) && status(502, 3)(w, r)
		},
		"a connection cut in the middle": func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPatch || n.Add(1) > 2 {
				return false
			}
			io.CopyN(io.Discard, r.Body, 1000)
			panic(http.ErrAbortHandler)
		},
		"a connection cut before the answer to the manifest": func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") && n.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
			return false
		},
		"HEAD finds what GET does not": func(w http.ResponseWriter, r *http.Request) bool {
			is := r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/blobs/")
			if is {
				w.Header().Set("Docker-Content-Digest", r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
			}
			return is
		},
		"a new repository that cannot be read": func(w http.ResponseWriter, r *http.Request) bool {
			is := r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
			if is {
				w.WriteHeader(http.StatusForbidden)
			}
			return is
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			n.Store(0)
			b.lie = lie
			data := big(300_000)
			if err := b.upload("/team/a:1", []byte("{}"), data); err != nil {
				t.Fatal(err)
			}
			b.lie = nil
			b.keeps("/team/a:1", data)
		})
	}
}

// keeps fetches a blob from the registry.
func (b *bench) keeps(ref string, data []byte) {
	b.t.Helper()
	r := b.repository(ref)
	if _, _, err := r.Manifest(b.t.Context()); err != nil {
		b.t.Error(err)
	}
	if got, err := r.Blob(b.t.Context(), describe(data)); err != nil || !bytes.Equal(got, data) {
		b.t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestAPushWaitsAsLongAsAsked(t *testing.T) {
	b := newBench(t)
	var first atomic.Int64
	b.lie = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !first.CompareAndSwap(0, time.Now().UnixNano()) {
			return false
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	if err := b.upload("/team/a:1", []byte("{}"), big(300_000)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(time.Unix(0, first.Load())); took < time.Second {
		t.Errorf("the request was repeated after %s", took)
	}
}

// endless answers a request with bytes until the client leaves.
func endless(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	for {
		if _, err := w.Write(bytes.Repeat([]byte(" "), 64<<10)); err != nil {
			return
		}
	}
}

// Each row is a registry to which a push fails. There is no tag then, and a retry against an honest registry succeeds.
func TestPushRefuses(t *testing.T) {
	posts := func(f func(w http.ResponseWriter)) func(b *bench) func(http.ResponseWriter, *http.Request) bool {
		return func(*bench) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost {
					f(w)
				}
				return r.Method == http.MethodPost
			}
		}
	}
	to := func(location string) func(b *bench) func(http.ResponseWriter, *http.Request) bool {
		return posts(func(w http.ResponseWriter) {
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusAccepted)
		})
	}
	for name, row := range map[string]struct {
		lie  func(b *bench) func(w http.ResponseWriter, r *http.Request) bool
		want string
	}{
		"refuses blobs": {posts(func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"errors":[{"code":"DENIED","message":"the quota is used up"}]}`)
		}), "the quota is used up"},
		"401":                     {posts(func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }), "docker login"},
		"always 500":              {posts(func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }), "after 6 attempts"},
		"endless errors":          {posts(func(w http.ResponseWriter) { endless(w, http.StatusBadRequest) }), "byte limit"},
		"no location":             {posts(func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) }), "missing Location"},
		"another private address": {to("http://169.254.169.254/latest"), "private"},
		"refuses the manifest": {func(*bench) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				is := r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/")
				if is {
					w.WriteHeader(http.StatusBadRequest)
					io.WriteString(w, `{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry"}]}`)
				}
				return is
			}
		}, "blob unknown"},
		"cuts every connection": {func(*bench) func(http.ResponseWriter, *http.Request) bool {
			return func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPatch {
					panic(http.ErrAbortHandler)
				}
				return false
			}
		}, "after 6 attempts"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.lie = row.lie(b)
			data := big(300_000)
			err := b.upload("/team/a:1", []byte("{}"), data)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %q", err, row.want)
			}
			b.lie = nil
			if _, _, err := b.repository("/team/a:1").Manifest(t.Context()); !errors.Is(err, ErrNotFound) {
				t.Errorf("a failed push left a tag: %v", err)
			}
			if err := b.upload("/team/a:1", []byte("{}"), data); err != nil {
				t.Fatal(err)
			}
			b.keeps("/team/a:1", data)
		})
	}
}

// A registry on the internet cannot make a push send bytes to a server of this network.
func TestAnUploadStaysEncryptedAndPublic(t *testing.T) {
	var reached atomic.Bool
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer inside.Close()
	request := func(p polite, url string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url, strings.NewReader("memory"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.RoundTrip(req)
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	public := polite{base: newTransport("registry.example"), scheme: "https"}
	if err := request(public, inside.URL); !errors.Is(err, errRedirect) {
		t.Errorf("to a plain connection: %v", err)
	}
	if proxied() {
		t.Log("addresses are the proxy's matter")
	} else if err := request(public, strings.Replace(inside.URL, "http:", "https:", 1)); !errors.Is(err, errAddress) {
		t.Errorf("to a private address: %v", err)
	}
	if reached.Load() {
		t.Error("a server of this network was reached")
	}
}

func TestTagsEnd(t *testing.T) {
	b := newBench(t)
	pages := 0
	b.lie = func(w http.ResponseWriter, r *http.Request) bool {
		is := strings.HasSuffix(r.URL.Path, "/tags/list")
		if is {
			pages++
			w.Header().Set("Link", fmt.Sprintf(`</v2/team/a/tags/list?last=%d>; rel="next"`, pages))
			fmt.Fprintf(w, `{"tags":[%s"t"]}`, strings.Repeat(`"t",`, 999))
		}
		return is
	}
	if tags, err := b.repository("/team/a").Tags(t.Context()); err != nil || len(tags) != maxTags || pages > 11 {
		t.Errorf("%d tags in %d pages, %v", len(tags), pages, err)
	}
	b.lie = func(w http.ResponseWriter, r *http.Request) bool {
		is := strings.HasSuffix(r.URL.Path, "/tags/list")
		if is {
			endless(w, http.StatusOK)
		}
		return is
	}
	if _, err := b.repository("/team/a").Tags(t.Context()); !errors.Is(err, errAnswer) {
		t.Errorf("an endless page: %v", err)
	}
}
