package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// tap is a registry whose blobs can be cut off.
type tap struct {
	*httptest.Server
	down   atomic.Bool  // blobs are answered with 503
	slow   atomic.Int64 // if not 0: the time of a large answer of a blob; they come one by one
	large  sync.Mutex   // held by a large answer in slow mode
	served atomic.Int64 // bytes of blobs
}

func newTap(t *testing.T) *tap {
	s := &tap{}
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			h.ServeHTTP(w, r)
			return
		}
		if s.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if s.slow.Load() > 0 {
			s.delay(r.Header.Get("Range"))
		}
		h.ServeHTTP(&counting{w, &s.served}, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// delay makes the prefetcher, which asks for large ranges, slower than any guest. Reads of guests ask for small ones.
func (s *tap) delay(ranges string) {
	var first, last int64
	if n, _ := fmt.Sscanf(ranges, "bytes=%d-%d", &first, &last); n < 2 || last-first < 512<<10 {
		time.Sleep(50 * time.Millisecond) // elapses: a link with a delay
		return
	}
	s.large.Lock()
	defer s.large.Unlock()
	time.Sleep(time.Duration(s.slow.Load())) // elapses: a slow link
}

type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *counting) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return c.ResponseWriter.Write(b)
}

// forkFrom forks from a registry, and returns the child and the tag of its snapshot.
func (d *daemon) forkFrom(ref string) (id, tag string) {
	d.t.Helper()
	code, out, errs := d.cli("fork", "--json", "--from", ref)
	var made []api.SandboxInfo
	if err := json.Unmarshal([]byte(out), &made); code != 0 || err != nil || len(made) != 1 {
		d.t.Fatalf("fork --from: exit code %d, %s %s", code, out, errs)
	}
	return made[0].ID, made[0].SnapshotTag
}

// absent returns the bytes of a snapshot that have not arrived.
func (d *daemon) absent(tag string) int64 {
	d.t.Helper()
	s, err := d.c.Snapshot(d.t.Context(), tag)
	if err != nil {
		d.t.Fatal(err)
	}
	return s.FetchBytes - s.FetchedBytes
}

func TestAForkBeforeItsSnapshotIsHere(t *testing.T) {
	kvmtest.Soak(t) // short forms: the tests of the fetching process and of the engine over fake VMs
	d := shared(t)
	small := d.small()
	d.unchanged()
	s := newTap(t)
	ref := strings.TrimPrefix(s.URL, "http://") + "/team/lazy:v1"
	sb := d.forkOf(small, 1)[0].ID
	d.sh(sb, "sleep 4711 >/dev/null 2>&1 &")
	d.sh(sb, "head -c 24000000 /dev/urandom > /big; sync; sha256sum /big > /sum; echo 3 > /proc/sys/vm/drop_caches")
	if _, err := d.c.Branch(t.Context(), sb, api.BranchRequest{Tag: "lazy-sent"}); err != nil {
		t.Fatal(err)
	}
	d.kill(sb)
	if code, _, errs := d.cli("push", "lazy-sent", ref); code != 0 {
		t.Fatalf("push: %s", errs)
	}
	if err := d.c.DeleteSnapshot(t.Context(), "lazy-sent", client.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// forkFrom forks, and drops all of it at the end of the subtest.
	forkFrom := func(t *testing.T) (id, tag string) {
		t.Helper()
		id, tag = d.forkFrom(ref)
		t.Cleanup(func() {
			s.down.Store(false)
			s.slow.Store(0)
			all, err := d.c.ListSandboxes(context.Background())
			if err != nil {
				t.Error(err)
			}
			for _, i := range all {
				if i.SnapshotTag == tag {
					_ = d.c.Kill(context.Background(), i.ID)
				}
			}
			if err := d.c.DeleteSnapshot(context.Background(), tag, client.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		return id, tag
	}
	const sum = "cd / && sha256sum -c sum"

	d.sub("it runs while the rest arrives", func(t *testing.T) {
		s.slow.Store(int64(2 * time.Second))
		id, tag := forkFrom(t)
		if got := d.sh(id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); !strings.Contains(got, "sleep 4711") {
			t.Errorf("its processes are %s", got)
		}
		if left := d.absent(tag); left == 0 {
			t.Error("the whole snapshot was here before the first answer")
		}
		if code, _, errs := d.cli("push", tag, ref); code == 0 || !strings.Contains(errs, "here") {
			t.Errorf("a push of a part: exit code %d, %s", code, errs)
		}
		if code, _, errs := d.cli("snapshot", "export", tag, "/dev/null"); code == 0 || !strings.Contains(errs, "partial") {
			t.Errorf("an export of a part: exit code %d, %s", code, errs)
		}
		d.end(syscall.SIGKILL) // the next daemon goes on
		d.start()
		if got := d.sh(id, "echo here"); got != "here" {
			t.Errorf("after the restart of the daemon: %q", got)
		}
		s.slow.Store(0)
		if got := d.sh(id, sum); !strings.Contains(got, "/big: OK") && !strings.Contains(got, "big: OK") {
			t.Errorf("the content is %s", got)
		}
		eventually(t, "the whole snapshot", func() bool { return d.absent(tag) == 0 })
		var err error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if _, err = d.c.VerifySnapshot(t.Context(), tag, nil); err == nil || !strings.Contains(err.Error(), "not ready yet") {
				break // the daemon computes the digests after the arrival
			}
		}
		if err != nil {
			t.Errorf("verify: %v", err)
		}
		s.down.Store(true)
		other := d.forkOf(tag, 1)[0].ID // without the registry
		s.down.Store(false)
		if got := d.sh(other, sum); !strings.Contains(got, "OK") {
			t.Errorf("the content of the second child is %s", got)
		}
	})

	d.sub("pull --lazy, and run", func(t *testing.T) {
		kvmtest.Soak(t)
		if code, _, errs := d.cli("pull", "--lazy", ref); code != 0 {
			t.Fatalf("pull --lazy: %s", errs)
		}
		t.Cleanup(func() { // the layers must not be there for the next subtest
			if err := d.c.DeleteSnapshot(context.Background(), "lazy-sent", client.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		_, tag := forkFrom(t)
		code, out, errs := d.cli("run", ref, "--", "cat", "/sum")
		if code != 0 || !strings.Contains(out, "big") {
			t.Errorf("run: exit code %d, %s %s", code, out, errs)
		}
		eventually(t, "the whole snapshot", func() bool { return d.absent(tag) == 0 })
	})

	d.sub("an outage", func(t *testing.T) {
		s.slow.Store(int64(2 * time.Second))
		id, tag := forkFrom(t)
		s.down.Store(true)
		if d.absent(tag) == 0 {
			t.Fatal("the snapshot is here already")
		}
		read := make(chan string, 1)
		go func() {
			r, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", sum}})
			if err != nil {
				read <- err.Error()
				return
			}
			read <- r.Stdout
		}()
		eventually(t, "the state stalled", func() bool {
			i, err := d.c.Sandbox(t.Context(), id)
			return err == nil && strings.Contains(string(i.Status)+i.Reason, "does not arrive")
		})
		s.down.Store(false)
		s.slow.Store(0)
		if got := <-read; !strings.Contains(got, "OK") {
			t.Errorf("after the outage: %s", got)
		}
	})

	d.sub("a killed fetcher", func(t *testing.T) {
		kvmtest.Soak(t)
		s.slow.Store(int64(2 * time.Second))
		id, tag := forkFrom(t)
		for _, pid := range d.daemonsIn() {
			if pid != d.pid() {
				d.KillProcess(pid)
			}
		}
		s.slow.Store(0)
		r, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", sum}, TimeoutSecs: 5}) // it may have what it needs
		if err == nil && r.ExitCode == 0 && !strings.Contains(r.Stdout, "OK") {
			t.Errorf("without the fetcher it read %s %s", r.Stdout, r.Stderr)
		}
		t.Logf("the sandbox of the killed fetcher: %v", err)
		if err != nil {
			eventually(t, "end of the sandbox of the killed fetcher", func() bool {
				i, err := d.c.Sandbox(t.Context(), id)
				return err == nil && i.Status == api.SandboxFailed
			})
		}
		next, n := "", 1
		eventually(t, "fork with a new fetcher", func() bool {
			res, err := d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag, N: &n})
			if err != nil || len(res.OK()) == 0 {
				return false
			}
			next = res.OK()[0].ID
			return true
		})
		if got := d.sh(next, sum); !strings.Contains(got, "OK") {
			t.Errorf("with a new fetcher: %s", got)
		}
	})

	d.sub("an outage beyond the limit", func(t *testing.T) {
		kvmtest.Soak(t)
		s.slow.Store(int64(300 * time.Millisecond))       // this daemon has none of it
		other := secondDaemon(t, "--fetch-timeout", "8s") // the daemon notes an outage after 2 s
		other.start()
		id, tag := other.forkFrom(ref)
		s.down.Store(true)
		t.Cleanup(func() {
			s.down.Store(false)
			s.slow.Store(0)
			_ = other.c.Kill(context.Background(), id)
			if err := other.c.DeleteSnapshot(context.Background(), tag, client.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		r, err := other.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", sum}, TimeoutSecs: 20})
		if err == nil && r.ExitCode == 0 {
			t.Errorf("it read what is not there: %s", r.Stdout)
		}
		t.Logf("the command: %d %s %v", r.ExitCode, r.Stderr, err)
		eventually(t, "the end with the reason", func() bool {
			i, err := other.c.Sandbox(t.Context(), id)
			return err == nil && i.Status == api.SandboxFailed && strings.Contains(i.Reason, "the rest of its snapshot")
		})
		i, err := other.c.Sandbox(t.Context(), id)
		t.Logf("it has failed: %s, %v", i.Reason, err)
	})
}
