package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/peers"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/hub"
)

// receiver is a daemon that copies snapshots from others on this host, with the operator's key of the holder.
func newReceiver(t *testing.T, key string) *bench {
	t.Helper()
	return newReceiverWith(t, key, func(*httpapi.Options) {})
}

func newReceiverWith(t *testing.T, key string, change func(*httpapi.Options)) *bench {
	t.Helper()
	file := filepath.Join(t.TempDir(), "peer.key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := peers.New(peers.Config{Allow: []string{"127.0.0.1"}, KeyFile: file, Plain: true, Wait: time.Millisecond,
		Stall: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return newBenchWith(t, func(o *httpapi.Options) {
		o.Peers = c
		change(o)
	})
}

// tenantOn returns a key of a tenant on a daemon.
func (b *bench) tenantOn(tenant string) *tenants {
	b.t.Helper()
	x := &tenants{bench: b}
	x.acme = x.key(keys.Spec{Name: tenant, Tenant: tenant})
	return x
}

func copyOf(urls ...string) string {
	b, _ := json.Marshal(api.CopySnapshotRequest{Peers: urls})
	return string(b)
}

// only returns a handler that counts the requests for blobs, and lets before answer them first.
func tapped(h http.Handler, blobs *atomic.Int64, before func(w http.ResponseWriter, r *http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/artifact/") {
			blobs.Add(1)
			if before != nil && before(w, r) {
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

func TestASnapshotIsCopiedFromAPeer(t *testing.T) {
	from := newTenants(t)
	holder := httptest.NewServer(from.h)
	defer holder.Close()
	to := newReceiver(t, from.key(keys.Spec{Name: "peer", Scopes: principal.Layers}))

	got := into[api.SnapshotInfo](t, to.do("POST", "/v1/snapshots/private/copy", copyOf(holder.URL)), 201)
	if got.Tag != "private" || got.Public {
		t.Errorf("%+v", got)
	}
	wantError(t, to.do("POST", "/v1/snapshots/private/copy", copyOf(holder.URL)), api.CodeConflict)
	wantError(t, to.do("POST", "/v1/snapshots/none/copy", copyOf(holder.URL)), api.CodeNotFound)
	metrics := to.do("GET", "/metrics", "").Body.String()
	if !strings.Contains(metrics, "forkd_peer_fetched_bytes_total "+strconv.Itoa(fakeengine.BlobBytes / 1000)[:1]) {
		t.Error("the fetched bytes are not counted")
	}
	if served := from.do("GET", "/metrics", "").Body.String(); strings.Contains(served, "forkd_peer_served_bytes_total 0\n") {
		t.Error("the served bytes are not counted")
	}
}

// A tenant gets its own snapshots and public ones, and no word about others'.
func TestACopyForATenant(t *testing.T) {
	from := newTenants(t)
	holder := httptest.NewServer(from.h)
	defer holder.Close()
	to := newReceiver(t, from.key(keys.Spec{Name: "peer", Scopes: principal.Layers}))
	acme, evil := to.tenantOn("acme"), to.tenantOn("evil")

	own := into[api.SnapshotInfo](t, acme.as(acme.acme, "POST", "/v1/snapshots/base/copy", copyOf(holder.URL)), 201)
	if own.Tag != "acme-base" || own.Owner != "acme" {
		t.Errorf("%+v", own)
	}
	for _, tag := range []string{"private", "base", "acme-base"} {
		wantError(t, evil.as(evil.acme, "POST", "/v1/snapshots/"+tag+"/copy", copyOf(holder.URL)), api.CodeNotFound)
	}
	fresh := newReceiver(t, from.key(keys.Spec{Name: "peer2", Scopes: principal.Layers}))
	evil = fresh.tenantOn("evil")
	wantError(t, evil.as(evil.acme, "POST", "/v1/snapshots/acme-base/copy", copyOf(holder.URL)), api.CodeNotFound)
	if err := fresh.engine.DeleteSnapshot(t.Context(), "py", sandbox.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	public := into[api.SnapshotInfo](t, evil.as(evil.acme, "POST", "/v1/snapshots/py/copy", copyOf(holder.URL)), 201)
	if !public.Public || public.Owner != "" {
		t.Errorf("a public snapshot became %+v", public)
	}
	other := fresh.tenantOn("other")
	into[api.SnapshotDetail](t, other.as(other.acme, "GET", "/v1/snapshots/py/info", ""), 200)

	// A copy of the operator keeps the tenant.
	kept := into[api.SnapshotInfo](t, fresh.do("POST", "/v1/snapshots/acme-base/copy", copyOf(holder.URL)), 201)
	if kept.Owner != "acme" {
		t.Errorf("%+v", kept)
	}
}

func TestWhoMayReadBlobs(t *testing.T) {
	b := newTenants(t)
	peer := b.key(keys.Spec{Name: "peer", Scopes: principal.Layers})
	reader := b.key(keys.Spec{Name: "reader", Scopes: principal.Read | principal.Run | principal.Admin})
	tenant := b.key(keys.Spec{Name: "l", Tenant: "evil", Scopes: principal.Layers})
	path := func(tag string) string { return "/v1/snapshots/" + tag + "/artifact" }
	raw := b.as(peer, "GET", path("acme-base"), "")
	if raw.Code != 200 || raw.Header().Get(api.HeaderSnapshotOwner) != "acme" {
		t.Fatalf("%d %v", raw.Code, raw.Header())
	}
	a, err := hub.ParseArtifact(raw.Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	blob := path("acme-base") + "/" + a.Layers[1].Digest
	if w := b.as(peer, "GET", blob, ""); w.Code != 200 || w.Body.Len() != fakeengine.BlobBytes {
		t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
	}
	wantError(t, b.as(reader, "GET", path("acme-base"), ""), api.CodeForbidden)
	wantError(t, b.as(reader, "GET", blob, ""), api.CodeForbidden)
	for _, p := range []string{path("acme-base"), blob, path("private"), path("base")} {
		wantError(t, b.as(tenant, "GET", p, ""), api.CodeNotFound)
		wantError(t, b.as(peer, "GET", p+"?tenant=evil", ""), api.CodeNotFound)
	}
	if w := b.as(tenant, "GET", path("py"), ""); w.Code != 200 || w.Header().Get(api.HeaderSnapshotPublic) != "true" {
		t.Errorf("a public snapshot: %d %v", w.Code, w.Header())
	}
	wantError(t, b.as(tenant, "GET", path("py")+"?tenant=acme", ""), api.CodeForbidden)
	wantError(t, b.as(peer, "GET", path("py")+"?tenant=A-B", ""), api.CodeInvalid)
	for _, other := range []string{"/v1/snapshots", "/v1/node", "/v1/sandboxes"} { // its only right
		wantError(t, b.as(peer, "GET", other, ""), api.CodeForbidden)
	}
}

func TestRangesOfBlobs(t *testing.T) {
	b := newBench(t)
	a, err := hub.ParseArtifact(b.do("GET", "/v1/snapshots/py/artifact", "").Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	path := "/v1/snapshots/py/artifact/" + a.Layers[1].Digest
	whole := b.do("GET", path, "").Body.Bytes()
	get := func(ranges string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Range", ranges)
		w := httptest.NewRecorder()
		b.h.ServeHTTP(w, r)
		return w
	}
	for ranges, want := range map[string][]byte{
		"bytes=0-0": whole[:1], "bytes=100-299999": whole[100:300000], "bytes=3000000-": whole[3000000:],
		"bytes=-7": whole[len(whole)-7:], "bytes=5-99999999999": whole[5:],
	} {
		if w := get(ranges); w.Code != http.StatusPartialContent || !bytes.Equal(w.Body.Bytes(), want) {
			t.Errorf("%s: %d, %d bytes", ranges, w.Code, w.Body.Len())
		}
	}
	for _, ranges := range []string{"bytes=99999999-", "bytes=5-1", "bytes=x-", "bytes=-", "pages=1-2",
		"bytes=18446744073709551615-", "bytes=9223372036854775807-9223372036854775807"} {
		if w := get(ranges); w.Code != http.StatusRequestedRangeNotSatisfiable {
			t.Errorf("%s: %d", ranges, w.Code)
		}
	}
	wantError(t, get("bytes=0-1,3-4"), api.CodeInvalid)
	wantError(t, b.do("GET", "/v1/snapshots/py/artifact/sha256:"+strings.Repeat("0", 64), ""), api.CodeNotFound)
	wantError(t, b.do("GET", "/v1/snapshots/py/artifact/latest", ""), api.CodeInvalid)
}

// Peers that fail, lie or lead elsewhere do not make a snapshot, and an honest one beside them does.
func TestHostilePeers(t *testing.T) {
	from := newTenants(t)
	key := from.key(keys.Spec{Name: "peer", Scopes: principal.Layers})
	honest := httptest.NewServer(from.h)
	defer honest.Close()
	var elsewhere atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer trap.Close()
	end := make(chan struct{})
	defer close(end)
	flip := func(w http.ResponseWriter, n int) {
		w.Header().Set("Content-Length", strconv.Itoa(n))
		_, _ = w.Write(bytes.Repeat([]byte("x"), n))
	}
	for name, hostile := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"wrong bytes": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Range") != "" {
				return false
			}
			flip(w, fakeengine.BlobBytes)
			return true
		},
		"endless": func(w http.ResponseWriter, r *http.Request) bool {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return true
				}
			}
			return true
		},
		"404 half-way": func(w http.ResponseWriter, r *http.Request) bool {
			http.Error(w, `{"error":"gone"}`, http.StatusNotFound)
			return true
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, trap.URL, http.StatusTemporaryRedirect)
			return true
		},
		"breaks off": func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", strconv.Itoa(fakeengine.BlobBytes))
			_, _ = w.Write(make([]byte, 10))
			panic(http.ErrAbortHandler)
		},
		"stalls": func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", strconv.Itoa(fakeengine.BlobBytes))
			_, _ = w.Write(make([]byte, 10))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-end:
			}
			return true
		},
		"another range": func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Range", "bytes 7-8/9")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(make([]byte, 2))
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			liar := httptest.NewServer(tapped(from.h, &asked, hostile))
			defer liar.Close()
			to := newReceiver(t, key)
			if w := to.do("POST", "/v1/snapshots/private/copy", copyOf(liar.URL)); w.Code < 400 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if asked.Load() == 0 || asked.Load() > 30 {
				t.Errorf("%d requests", asked.Load())
			}
			wantError(t, to.do("GET", "/v1/snapshots/private/info", ""), api.CodeNotFound)
			into[api.SnapshotInfo](t, to.do("POST", "/v1/snapshots/private/copy", copyOf(liar.URL, honest.URL)), 201)
		})
	}
	if elsewhere.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

// Blobs of a peer that breaks off continue at another one.
func TestACopyContinuesAtAnotherPeer(t *testing.T) {
	from := newTenants(t)
	key := from.key(keys.Spec{Name: "peer", Scopes: principal.Layers})
	var first, second atomic.Int64
	dying := httptest.NewServer(tapped(from.h, &first, func(w http.ResponseWriter, r *http.Request) bool {
		rec := httptest.NewRecorder()
		from.h.ServeHTTP(rec, r)
		b := rec.Body.Bytes()
		if len(b) < fakeengine.BlobBytes {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, _ = w.Write(b[:len(b)/2])
		panic(http.ErrAbortHandler)
	}))
	defer dying.Close()
	var ranges sync.Map
	alive := httptest.NewServer(tapped(from.h, &second, func(_ http.ResponseWriter, r *http.Request) bool {
		ranges.Store(r.Header.Get("Range"), true)
		return false
	}))
	defer alive.Close()
	to := newReceiver(t, key)
	into[api.SnapshotInfo](t, to.do("POST", "/v1/snapshots/private/copy", copyOf(dying.URL, alive.URL)), 201)
	if first.Load() == 0 || second.Load() == 0 {
		t.Errorf("asked %d and %d times", first.Load(), second.Load())
	}
	some := false
	ranges.Range(func(k, _ any) bool { some = some || k != ""; return true })
	if !some {
		t.Error("no blob was continued")
	}
}

func TestPeersThatAreNotAllowed(t *testing.T) {
	to := newReceiver(t, "forkd_key")
	for _, url := range []string{"http://169.254.169.254", "http://127.0.0.2:80", "http://localhost:1", "https://example.org",
		"http://127.0.0.1:1/path", "http://u:p@127.0.0.1:1", "file:///etc/passwd", "127.0.0.1:1", "http://[::ffff:10.0.0.1]:1"} {
		wantError(t, to.do("POST", "/v1/snapshots/x/copy", copyOf(url)), api.CodeForbidden)
	}
	wantError(t, to.do("POST", "/v1/snapshots/x/copy", `{"peers":[]}`), api.CodeInvalid)
	wantError(t, newBench(t).do("POST", "/v1/snapshots/x/copy", copyOf("http://127.0.0.1:1")), api.CodeUnsupported)
	unreachable := to.do("POST", "/v1/snapshots/x/copy", copyOf("http://127.0.0.1:1"))
	wantError(t, unreachable, api.CodeNoResources)
}

// Several requests for the same snapshot make one copy.
func TestCopiesOfTheSameSnapshotAtOnce(t *testing.T) {
	from := newTenants(t)
	key := from.key(keys.Spec{Name: "peer", Scopes: principal.Layers})
	var asked atomic.Int64
	holder := httptest.NewServer(tapped(from.h, &asked, nil))
	defer holder.Close()
	to := newReceiver(t, key)
	var made, taken atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			switch w := to.do("POST", "/v1/snapshots/private/copy", copyOf(holder.URL)); w.Code {
			case 201:
				made.Add(1)
			case 409:
				taken.Add(1)
			default:
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 || taken.Load() != 7 || asked.Load() != 3 {
		t.Errorf("%d made, %d refused, %d blobs", made.Load(), taken.Load(), asked.Load())
	}
}

// A peer that speaks of another tenant or tag is not believed.
func TestAPeerThatSpeaksOfOthers(t *testing.T) {
	from := newTenants(t)
	key := from.key(keys.Spec{Name: "peer", Scopes: principal.Layers})
	for i, header := range []map[string]string{
		{api.HeaderSnapshotTag: "other"},
		{api.HeaderSnapshotOwner: "acme"},
		{api.HeaderSnapshotTag: "acme-private", api.HeaderSnapshotOwner: "acme"},
		{api.HeaderSnapshotTag: "evil-private", api.HeaderSnapshotOwner: ""},
		{api.HeaderSnapshotOwner: "../x"},
	} {
		liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.RawQuery = "" // as the operator
			rec := httptest.NewRecorder()
			from.h.ServeHTTP(rec, r)
			for k, v := range rec.Header() {
				w.Header()[k] = v
			}
			for k, v := range header {
				w.Header().Set(k, v)
			}
			_, _ = w.Write(rec.Body.Bytes())
		}))
		to := newReceiver(t, key)
		evil := to.tenantOn("evil")
		wantError(t, evil.as(evil.acme, "POST", "/v1/snapshots/private/copy", copyOf(liar.URL)), api.CodeConflict)
		if w := to.do("GET", "/v1/snapshots", ""); strings.Contains(w.Body.String(), "private") {
			t.Errorf("%d: %s", i, w.Body)
		}
		liar.Close()
	}
}
