package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/httpapi/fakedaemon"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/test/harness"
)

// attacked is a daemon that dies, or whose disk is full, at a request of a build. Requests are counted from 1.
type attacked struct {
	t      *testing.T
	daemon *fakedaemon.Daemon
	url    string

	mu   sync.Mutex // guards the fields below
	seen []string   // requests
	at   int        // the request that meets the fault; 0 for none
	how  string     // before: killed before the request; after: killed before its answer; full: no space
	dead bool
}

func newAttacked(t *testing.T) *attacked {
	t.Helper()
	d, err := fakedaemon.Start("box")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	target, err := url.Parse(strings.Replace(d.TCP, "tcp://", "http://", 1))
	if err != nil {
		t.Fatal(err)
	}
	a := &attacked{t: t, daemon: d}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(proxy, w, r) }))
	front.Config.ErrorLog = nil
	t.Cleanup(front.Close)
	a.url = front.URL
	return a
}

func (a *attacked) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.seen = append(a.seen, r.Method+" "+r.URL.Path)
	hit, how := a.at == len(a.seen), a.how
	dead := a.dead || hit && how != "full"
	a.dead = dead
	a.mu.Unlock()
	switch {
	case hit && how == "after":
		next.ServeHTTP(httptest.NewRecorder(), r) // done, and the answer is lost
		panic(http.ErrAbortHandler)
	case dead:
		panic(http.ErrAbortHandler)
	case hit && how == "full":
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInsufficientStorage)
		fmt.Fprint(w, `{"error":"no space left on device","code":"no_space"}`)
		return
	}
	next.ServeHTTP(w, r)
}

// restart begins to count anew.
func (a *attacked) restart(at int, how string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen, a.at, a.how, a.dead = nil, at, how, false
}

const attackedFile = "FROM box AS one\nENV A=1\nRUN [\"echo\", \"one\"]\nWORKDIR /srv\nFROM box\nCOPY f /tmp/\n" +
	"COPY --from=one /etc/hostname /tmp/\nRUN [\"echo\", \"two\"]\nCMD [\"serve\"]\n"

// build builds with the real builder.
func (a *attacked) build(ctx context.Context, text string) (api.SnapshotInfo, error) {
	a.t.Helper()
	c, err := client.New(client.Options{URL: a.url, Token: fakedaemon.Token})
	if err != nil {
		a.t.Fatal(err)
	}
	defer c.Close()
	dir := a.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o600); err != nil {
		a.t.Fatal(err)
	}
	f, err := Parse("Dockerfile", []byte(text))
	if err != nil {
		a.t.Fatal(err)
	}
	files, err := OpenContext(dir, filepath.Join(dir, "Dockerfile"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer files.Close()
	b := &Builder{Client: c, File: f, Context: files, Tag: "app", Report: nothing{}, Image: c.Image}
	return b.Build(ctx)
}

// listed checks that each listed snapshot is complete, and returns their tags.
func (a *attacked) listed(what string) map[string]bool {
	a.t.Helper()
	all, err := a.daemon.Engine.ListSnapshots(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	tags := map[string]bool{}
	for _, s := range all {
		tags[s.Tag] = true
		if s.Status != sandbox.SnapshotReady {
			a.t.Errorf("%s: %s is %s", what, s.Tag, s.Status)
		}
	}
	return tags
}

// numbers are those of sandboxes and the keys of layers.
var numbers = regexp.MustCompile(`-[0-9a-f-]{8,}`)

// A daemon is killed before and after each request of a build, and its disk is full at each. Afterwards all listed
// snapshots are complete, each of them is one of an undisturbed build, and a retry makes the image.
func TestBuildsWithAnAttackedDaemon(t *testing.T) {
	calm := newAttacked(t)
	if _, err := calm.build(t.Context(), attackedFile); err != nil {
		t.Fatal(err)
	}
	want, requests := calm.listed("calm"), calm.seen
	if len(want) < 5 || len(requests) < 20 || !want["app"] {
		t.Fatalf("%d requests make %v", len(requests), want)
	}
	t.Logf("%d requests", len(requests))
	for _, how := range []string{"before", "after", "full"} {
		t.Run(how, func(t *testing.T) {
			met := map[string]bool{}
			for i, request := range requests {
				kind := numbers.ReplaceAllString(request, "")
				if !met[kind] || harness.Soaking() { // otherwise the first one of each kind
					met[kind] = true
					calm.attack(t, want, i+1, how)
				}
			}
		})
	}
}

// attack builds with a fault at a request, and again without one.
func (a *attacked) attack(t *testing.T, want map[string]bool, at int, how string) {
	t.Helper()
	b := newAttacked(t)
	b.restart(at, how)
	what := fmt.Sprintf("%s request %d, %s", how, at, a.seen[at-1])
	_, err := b.build(t.Context(), attackedFile)
	if err == nil && how != "full" && !harmless(a.seen[at-1]) {
		t.Errorf("%s: the build succeeds", what)
	}
	var said *client.Error
	guest := strings.Contains(a.seen[at-1], "/agent/") // the daemon passes these on
	if how == "full" && err != nil && !guest && (!errors.As(err, &said) || said.Code != api.CodeNoSpace) {
		t.Errorf("%s: got %v", what, err)
	}
	if errors.Is(err, ErrDockerfile) {
		t.Errorf("%s: the file is blamed: %v", what, err)
	}
	for tag := range b.listed(what) {
		if !want[tag] && !strings.HasPrefix(tag, "build-") { // the image before it has its tag
			t.Errorf("%s: %s is listed", what, tag)
		}
	}
	b.restart(0, "")
	if _, err := b.build(t.Context(), attackedFile); err != nil {
		t.Errorf("%s: the retry fails: %v", what, err)
	}
	got := b.listed(what)
	if len(got) != len(want) || !got["app"] {
		t.Errorf("%s: the retry leaves %v, want %v", what, got, want)
	}
	for _, sb := range b.daemon.Engine.List() {
		if sb.Life.Deadline.IsZero() {
			t.Errorf("%s: sandbox %s is left behind for ever", what, sb.ID)
		}
	}
}

// harmless reports whether a build does not need the answer to a request: the end of a sandbox.
func harmless(request string) bool { return strings.HasPrefix(request, "DELETE /v1/sandboxes/") }

// The snapshot of a layer that a daemon could not read after a crash does not block builds.
func TestABuildReplacesTornLayers(t *testing.T) {
	calm := newAttacked(t)
	if _, err := calm.build(t.Context(), attackedFile); err != nil {
		t.Fatal(err)
	}
	for tag := range calm.listed("calm") {
		for _, torn := range []sandbox.SnapshotInfo{
			{Tag: tag, Status: sandbox.SnapshotFailed, Warning: "memory: file is missing"},
			{Tag: tag, Status: sandbox.SnapshotReady, Damaged: []string{"memory"}},
		} {
			b := newAttacked(t)
			b.daemon.Engine.AddSnapshot(torn)
			if _, err := b.build(t.Context(), attackedFile); err != nil {
				t.Errorf("with a torn %s (%s): %v", tag, torn.Status, err)
			}
			if got := b.listed("with a torn " + tag); !got["app"] || len(got) != len(calm.listed("calm")) {
				t.Errorf("with a torn %s (%s): %v are listed", tag, torn.Status, got)
			}
			if left, err := b.daemon.Engine.SnapshotInfo(t.Context(), tag); err != nil || len(left.Damaged) > 0 {
				t.Errorf("a torn %s (%s) is left: %v", tag, torn.Status, err)
			}
		}
	}
}

// A full disk leaves the former image in place, until the new one only has to get its tag.
func TestAFullDiskKeepsTheFormerImage(t *testing.T) {
	calm := newAttacked(t)
	build := func(a *attacked, text string) error {
		_, err := a.build(t.Context(), text)
		return err
	}
	const before, after = "FROM box\nCMD [\"old\"]\n", "FROM box\nRUN [\"echo\", \"x\"]\nCMD [\"new\"]\n"
	if err := build(calm, before); err != nil {
		t.Fatal(err)
	}
	calm.restart(0, "")
	if err := build(calm, after); err != nil {
		t.Fatal(err)
	}
	for i, request := range calm.seen {
		b := newAttacked(t)
		if err := build(b, before); err != nil {
			t.Fatal(err)
		}
		b.restart(i+1, "full")
		err := build(b, after)
		renames := strings.HasSuffix(request, "/rename")
		if got := b.listed(request); !got["app"] && !renames {
			t.Errorf("full at %s: %v; %v are listed", request, err, got)
		}
		b.restart(0, "")
		if err := build(b, after); err != nil {
			t.Errorf("full at %s: the retry: %v", request, err)
		}
	}
}
