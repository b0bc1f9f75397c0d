package e2e

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// slowLink is a connection to a daemon, which runs a function once after some bytes of blobs.
type slowLink struct {
	*httptest.Server
	sent  atomic.Int64
	after int64
	once  sync.Once
	do    func()
}

func newSlowLink(t *testing.T, to string, after int64, do func()) *slowLink {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l := &slowLink{after: after, do: do}
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	proxy.ModifyResponse = func(r *http.Response) error {
		if strings.Contains(r.Request.URL.Path, "/artifact/") {
			r.Body = &slowBody{r.Body, l}
		}
		return nil
	}
	l.Server = httptest.NewServer(proxy)
	t.Cleanup(l.Close)
	return l
}

type slowBody struct {
	io.ReadCloser
	l *slowLink
}

func (b *slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), 64<<10)])
	if b.l.sent.Add(int64(n)) > b.l.after {
		b.l.once.Do(b.l.do)
	}
	return n, err
}

// freeAddress returns an address that no process listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestASnapshotGoesToAnotherDaemon copies a branch between two daemons with their own stores, while the holder is killed,
// and finds its processes and files in a fork there. The list of a daemon with a full disk stays empty.
func TestASnapshotGoesToAnotherDaemon(t *testing.T) {
	kvmtest.Soak(t) // short forms: the tests of artifacts and of moves over fake VMs
	at := freeAddress(t)
	a := secondDaemon(t, "--listen", "tcp://"+at, "--pool", "0")
	if err := harness.PutSmallImage(t, a.images(), "box", harness.SmallImage{}); err != nil {
		t.Fatal(err)
	}
	a.start()
	if _, err := a.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "base", Image: "box"}, nil); err != nil {
		t.Fatal(err)
	}
	sb := busy(a)
	if _, err := a.c.Branch(t.Context(), sb, api.BranchRequest{Tag: "travels"}); err != nil {
		t.Fatal(err)
	}
	a.kill(sb)
	code, out, errs := a.cli("key", "create", "peer", "--scope", "layers", "--json")
	var key api.NewKey
	if err := json.Unmarshal([]byte(out), &key); code != 0 || err != nil {
		t.Fatalf("key create: exit code %d, %s%s", code, out, errs)
	}
	file := filepath.Join(t.TempDir(), "peer.key")
	if err := os.WriteFile(file, []byte(key.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--pool", "0", "--peer", "127.0.0.1", "--peer-key-file", file, "--peer-plain-http"}

	b := secondDaemon(t, flags...)
	b.start()
	killed := make(chan struct{})
	l := newSlowLink(t, "http://"+at, 4<<20, func() {
		go func() {
			defer close(killed)
			a.end(syscall.SIGKILL)
			if err := a.Start(); err != nil {
				t.Error(err)
			}
		}()
	})
	began := time.Now()
	code, _, errs = b.cli("snapshot", "copy", "travels", "--from-peer", l.URL)
	if code != 0 {
		t.Fatalf("copy: exit code %d, %s", code, errs)
	}
	<-killed
	t.Logf("%d bytes in %s, with a kill of the holder", l.sent.Load(), time.Since(began))
	child := b.forkOf("travels", 1)[0].ID
	b.isBusy(child)
	eventually(t, "digests", func() bool {
		r, err := b.c.VerifySnapshot(t.Context(), "travels", nil)
		if len(r.Damaged) > 0 {
			t.Fatal(r.Damaged)
		}
		return err == nil && r.OK
	})
	b.kill(child)
	b.sub("a sandbox moves", func(t *testing.T) { movesBetween(t, a, b, at) })
	b.sub("a full disk", func(t *testing.T) {
		mount := smallDisk(t, 32) // unmounted after the end of the daemon
		full := secondDaemon(t, append([]string{"--disk-reserve", "0"}, flags...)...)
		full.Data = mount
		full.start()
		_, err := full.c.CopySnapshot(t.Context(), "travels", []string{"http://" + at})
		wantError(t, err, api.CodeNoSpace)
		if all, err := full.c.ListSnapshots(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("it lists %+v, %v", all, err)
		}
		id := busy(a)
		a.pause(id)
		code, _, errs := full.cli("resume", id, "--from-peer", "http://"+at)
		if left, err := full.c.ListSandboxes(t.Context()); code == 0 || !strings.Contains(errs, "space") || len(left) > 0 {
			t.Errorf("a move: exit code %d, %s; it lists %+v, %v", code, errs, left, err)
		}
		a.resume(id)
		a.isBusy(id)
		a.kill(id)
	})
}

// busy returns a sandbox with a process and a large file.
func busy(d *daemon) (id string) {
	d.t.Helper()
	id = d.forkOf("base", 1)[0].ID
	d.sh(id, "sleep 4711 >/dev/null 2>&1 &")
	d.sh(id, "head -c 12000000 /dev/urandom > /big; sync; sha256sum /big > /sum")
	return id
}

// isBusy checks for the process and the file.
func (d *daemon) isBusy(id string) {
	d.t.Helper()
	if got := d.sh(id, "cd / && sha256sum -c sum"); !strings.Contains(got, "OK") {
		d.t.Errorf("its file: %s", got)
	}
	if got := d.sh(id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); !strings.Contains(got, "sleep 4711") {
		d.t.Errorf("its processes: %s", got)
	}
}

// movesBetween resumes a paused sandbox of a at b, while a is killed in the middle of the copy. The sandbox and its snapshot leave a.
func movesBetween(t *testing.T, a, b *daemon, at string) {
	id := busy(a)
	boot := a.sh(id, "cat /proc/sys/kernel/random/boot_id; hostname")
	a.pause(id)
	killed := make(chan struct{})
	l := newSlowLink(t, "http://"+at, 4<<20, func() {
		go func() {
			defer close(killed)
			a.end(syscall.SIGKILL)
			if err := a.Start(); err != nil {
				t.Error(err)
			}
		}()
	})
	began := time.Now()
	if code, _, errs := b.cli("resume", id, "--from-peer", l.URL); code != 0 {
		t.Fatalf("resume: exit code %d, %s", code, errs)
	}
	<-killed
	t.Logf("%d bytes in %s, with a kill of the giver", l.sent.Load(), time.Since(began))
	b.isBusy(id)
	if got := b.sh(id, "cat /proc/sys/kernel/random/boot_id; hostname"); got != boot {
		t.Errorf("it says %q, and said %q", got, boot)
	}
	if _, err := a.c.Sandbox(t.Context(), id); !client.IsNotFound(err) || client.ReasonOf(err) != api.ReasonSandboxMoved {
		t.Errorf("the giver says %v", err)
	}
	if left, err := a.c.ListSandboxes(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("the giver lists %+v, %v", left, err)
	}
	eventually(t, "the giver's snapshot is gone", func() bool {
		left, _ := filepath.Glob(filepath.Join(a.store(), "pause-"+id+"*"))
		return len(left) == 0
	})
	b.kill(id)
}
