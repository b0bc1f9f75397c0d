package crash

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// builtTag is the tag of the Dockerfile's snapshot.
const builtTag = "built"

// dockerfile has a stage, files of the context and of the stage, a command that takes a moment, and a configuration.
const dockerfile = `FROM ` + parentTag + ` AS one
RUN echo one > /root/one; dd if=/dev/urandom of=/root/noise bs=1M count=4
FROM ` + parentTag + `
COPY part /root/
COPY --from=one /root/one /root/
RUN sleep 0.2; cat /root/part /root/one > /root/both
ENV A=1
`

// lease is the longest life of a sandbox that a build has left behind.
const lease = 5 * time.Minute

// gate passes a build's requests to the daemon, and kills the daemon at one of them. Requests are counted from 1.
type gate struct {
	w    *world
	url  string
	mu   sync.Mutex // guards the fields below
	seen []string
	at   int           // the request at which it kills; 0: none
	late time.Duration // how long the request has been with the daemon by then; negative: not at all
	down sync.Once
}

// newGate returns a gate for the world's daemon.
func newGate(w *world, at int, late time.Duration) *gate {
	g := &gate{w: w, at: at, late: late}
	socket := filepath.Join(w.d.Run, "forkd.sock")
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "daemon"})
	proxy.FlushInterval = -1
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		g.serve(proxy, rw, r)
	}))
	path := filepath.Join(w.d.Dir, "gate.sock")
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		w.t.Fatal(err)
	}
	front.Listener, g.url = l, "unix://"+path
	front.Config.ErrorLog = nil
	front.Start()
	w.t.Cleanup(front.Close)
	return g
}

func (g *gate) serve(next http.Handler, rw http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.seen = append(g.seen, r.Method+" "+r.URL.Path)
	hit := g.at == len(g.seen)
	g.mu.Unlock()
	switch {
	case hit && g.late < 0:
		g.kill()
	case hit:
		timer := time.AfterFunc(g.late, g.kill)
		defer func() { // an answer before that time is lost
			timer.Stop()
			g.kill()
			panic(http.ErrAbortHandler)
		}()
		rw = httptest.NewRecorder()
	}
	next.ServeHTTP(rw, r)
}

func (g *gate) kill() { g.down.Do(func() { g.w.d.End(syscall.SIGKILL) }) }

// build runs the command.
func (g *gate) build(dir string) (notes string, err error) {
	cmd := exec.CommandContext(g.w.t.Context(), g.w.d.Forkd(), "--url", g.url, "image", "build", "-t", builtTag,
		"--net", "none", dir)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CACHE_HOME="+filepath.Join(dir, ".cache"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

// requests returns what the gate has seen.
func (g *gate) requests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

// TestKillsDuringADockerfileBuild kills the daemon at requests of `forkd image build`, before, in and after them. What
// is listed afterwards is whole, what runs ends soon, and a retry makes the image.
func TestKillsDuringADockerfileBuild(t *testing.T) {
	kvmtest.Drawn(t)
	random := kvmtest.Random(kvmtest.Seed(t), 1)
	w := newWorld(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"Dockerfile": dockerfile, "part": "part\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var calm []string
	w.sub("no kill", func() {
		g := newGate(w, 0, 0)
		if notes, err := g.build(dir); err != nil {
			w.t.Fatalf("%v: %s", err, notes)
		}
		calm = g.requests()
		w.isBuilt()
	})
	if len(calm) < 15 {
		t.Fatalf("a build has the requests %v", calm)
	}
	kills := 3
	if harness.Soaking() {
		kills = len(calm)
	}
	for _, i := range random.Perm(len(calm))[:kills] {
		late := time.Duration(random.IntN(300)-100) * time.Millisecond
		w.sub(fmt.Sprintf("%s of request %d, %s", late, i+1, calm[i]), func() { w.killInBuild(dir, i+1, late) })
	}
}

func (w *world) killInBuild(dir string, at int, late time.Duration) {
	g := newGate(w, at, late)
	notes, err := g.build(dir)
	last := g.requests()
	g.kill() // if the build ended before the request
	w.t.Logf("%d requests: %v", len(last), err)
	if err == nil && len(last) > at+4 { // the end of the last sandboxes may fail
		w.t.Errorf("the build succeeds: %s", notes)
	}
	w.start()
	w.soonOver()
	w.wholeOnly()
	again := newGate(w, 0, 0)
	if notes, err := again.build(dir); err != nil {
		w.t.Errorf("the retry fails: %v: %s", err, notes)
	}
	w.isBuilt()
}

// soonOver checks that all sandboxes have a deadline, and ends them.
func (w *world) soonOver() {
	w.t.Helper()
	list, err := w.d.Client.ListSandboxes(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sb := range list {
		if sb.Life == nil || sb.Life.DeadlineUnix == nil || time.Until(time.Unix(*sb.Life.DeadlineUnix, 0)) > lease {
			w.t.Errorf("sandbox %s (%s) stays: %+v", sb.ID, sb.Status, sb.Life)
		}
		if err := w.d.Kill(sb.ID); err != nil {
			w.t.Error(err)
		}
	}
}

// wholeOnly verifies all listed snapshots.
func (w *world) wholeOnly() {
	w.t.Helper()
	list, err := w.d.Client.ListSnapshots(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sn := range list {
		if sn.Status != api.SnapshotReady || !sn.Bootable {
			w.t.Errorf("snapshot %s is %s: %v", sn.Tag, sn.Status, sn.Warning)
			continue
		}
		w.verified(sn.Tag)
	}
}

// isBuilt checks the built snapshot in a child. It then removes all that builds have made.
func (w *world) isBuilt() {
	w.t.Helper()
	child := w.fork(builtTag)
	if got := w.sh(child.ID, "cat /root/both; echo $A"); got != "part\none\n1\n" {
		w.t.Errorf("the built snapshot has %q", got)
	}
	w.clean()
	w.wholeOnly()
	list, err := w.d.Client.ListSnapshots(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sn := range list {
		if sn.Tag == parentTag {
			continue
		}
		err := w.d.Client.DeleteSnapshot(w.t.Context(), sn.Tag, client.DeleteOptions{Cascade: true})
		if err != nil && !client.IsNotFound(err) {
			w.t.Error(err)
		}
	}
	w.nothingLeft()
}

// TestKillsWhileAnImageArrives kills the daemon while it receives an image, the last step of the build of a recipe. The
// image is then whole or not there, the store has no rest of it, and a retry makes it.
func TestKillsWhileAnImageArrives(t *testing.T) {
	kvmtest.Drawn(t)
	random := kvmtest.Random(kvmtest.Seed(t), 2)
	w := newWorld(t)
	store := t.TempDir()
	if err := harness.PythonImage(t, store); err != nil {
		t.Fatal(err)
	}
	s, err := image.OpenStore(store)
	if err != nil {
		t.Fatal(err)
	}
	built, err := s.Get("python-numpy")
	if err != nil {
		t.Fatal(err)
	}
	before := harness.Names(w.d.Images())
	for _, share := range []float64{random.Float64(), 1} {
		w.sub(fmt.Sprintf("after %.2f", share), func() { w.killInArrival(built, share, random, before) })
	}
}

func (w *world) killInArrival(built image.Image, share float64, random *rand.Rand, before []string) {
	ctx := w.t.Context()
	cut := &cutter{left: int64(share * float64(built.Size())), kill: func() {
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond) // elapses: the daemon works on what it has
		w.d.End(syscall.SIGKILL)
	}}
	send := func(through io.Reader, to *io.PipeWriter) (api.Image, error) {
		go func() { to.CloseWithError(built.Export(ctx, to, nil)) }()
		return w.d.Client.ImportImage(ctx, built.Name, "", through)
	}
	r, to := io.Pipe()
	cut.Reader = r
	_, err := send(cut, to)
	r.Close()
	if w.d.Running() && !cut.over {
		w.t.Fatalf("the daemon was not killed: %v", err)
	}
	told := err == nil
	w.start()
	got, err := w.d.Client.Image(ctx, built.Name)
	switch {
	case client.IsNotFound(err) && told:
		w.t.Error("the caller was told of success, and the image is not there")
	case client.IsNotFound(err):
		if left := harness.Names(w.d.Images()); !slices.Equal(left, before) {
			w.t.Errorf("the store has %v, want %v", left, before)
		}
	case err != nil:
		w.t.Fatal(err)
	case got.Digest == "":
		w.t.Errorf("the image is %+v", got)
	}
	want, err := built.ID()
	if err != nil {
		w.t.Fatal(err)
	}
	r, to = io.Pipe()
	if got, err = send(r, to); err != nil || got.Digest != "sha256:"+want {
		w.t.Errorf("the retry: %+v, %v", got, err)
	}
	if err := w.d.Client.RemoveImage(ctx, built.Name); err != nil {
		w.t.Error(err)
	}
	if left := harness.Names(w.d.Images()); !slices.Equal(left, before) {
		w.t.Errorf("the store has %v, want %v", left, before)
	}
}

// cutter is a stream that kills after a number of bytes, or at its end.
type cutter struct {
	io.Reader
	left int64
	over bool
	kill func()
}

// Read implements io.Reader.
func (c *cutter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.left -= int64(n); !c.over && (c.left <= 0 || err != nil) {
		c.over = true
		go c.kill()
	}
	return n, err
}
