package e2e

import (
	"context"
	"io"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// web declares an HTTP server of Python on a port.
func web(port int) api.ServiceSpec {
	return api.ServiceSpec{
		Command: []string{"python3", "-u", "-m", "http.server", strconv.Itoa(port)}, Port: port, Cwd: "/tmp",
		Ready: &api.ServiceReady{HTTP: "/"}, Backoff: &api.ServiceBackoff{InitialMS: 50, MaxMS: 400},
	}
}

// service waits until the only service of a sandbox fulfils a condition.
func (d *daemon) service(id, what string, ok func(api.Service) bool) (s api.Service) {
	d.t.Helper()
	eventually(d.t, what, func() bool {
		list, err := client.ServicesOf(d.c, id).List(d.t.Context(), 0)
		if err != nil {
			d.t.Fatalf("services of %s: %v", id, err)
		}
		if len(list) != 1 {
			return false
		}
		s = list[0]
		return ok(s)
	})
	return s
}

// serviceEvents returns the events of a sandbox's services so far.
func (d *daemon) serviceEvents(id string) string {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Second)
	defer cancel()
	var kinds []string
	req := client.EventsRequest{All: true, Sandbox: id, Kinds: []string{"service."}}
	_ = d.c.Events(ctx, req, func(e api.Event) error { // ends with its time
		kind := e.Kind
		if code := e.Detail["exit_code"]; code != "" {
			kind += "/" + code
		}
		kinds = append(kinds, kind)
		return nil
	})
	return strings.Join(kinds, " ")
}

func isReady(s api.Service) bool { return s.State == "ready" }

// Services are part of a sandbox's memory: a clone continues with them as they were.
func TestServicesOfClones(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	n := 1
	sb := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n,
		Services: []api.NamedService{{Name: "web", ServiceSpec: web(8901)}}}).OK()[0]
	id := sb.ID
	s := d.service(id, "service is ready", isReady)
	d.sub("listed by ps", func(t *testing.T) {
		eventually(t, "service in the list", func() bool {
			got, err := d.c.Sandbox(t.Context(), id)
			return err == nil && len(got.Services) == 1 && got.Services[0].Name == "web" && got.Services[0].State == "ready"
		})
	})
	d.sub("kill -9 of the service", func(t *testing.T) {
		d.sh(id, "kill -9 "+strconv.Itoa(s.PID))
		s = d.service(id, "restart", func(now api.Service) bool { return isReady(now) && now.PID != s.PID })
		eventually(t, "events", func() bool { return d.serviceEvents(id) == "service.ready service.crashed/137 service.ready" })
		if s.Restarts != 1 || s.ExitCode == nil || *s.ExitCode != 137 {
			t.Errorf("got %+v", s)
		}
		var log strings.Builder
		if err := client.ServicesOf(d.c, id).Log(t.Context(), "web", -1, false, &log); err != nil ||
			strings.Count(log.String(), "GET / HTTP/1.1") < 2 {
			t.Errorf("log %q, %v", log.String(), err)
		}
	})
	d.sub("a branch and a rollback", func(t *testing.T) {
		// Its tag stays until the end of the test, as the rollback makes it the sandbox's base.
		res, err := d.c.Branch(t.Context(), id, api.BranchRequest{Tag: "with-service", N: 1})
		if err != nil {
			t.Fatal(err)
		}
		child := res.Children[0].ID
		got := d.service(child, "service in the clone", isReady)
		if got.PID != s.PID || got.Restarts != s.Restarts {
			t.Errorf("of the clone %+v, of its source %+v", got, s)
		}
		d.sh(child, "kill -9 "+strconv.Itoa(got.PID))
		d.service(child, "restart in the clone", func(now api.Service) bool { return isReady(now) && now.Restarts == s.Restarts+1 })
		if still := d.service(id, "source", isReady); still.PID != s.PID || still.Restarts != s.Restarts {
			t.Errorf("the source has %+v", still)
		}
		eventually(t, "clone in the list", func() bool {
			got, err := d.c.Sandbox(t.Context(), child)
			return err == nil && len(got.Services) == 1 && got.Services[0].Restarts == s.Restarts+1
		})
		if _, err := client.ServicesOf(d.c, id).Change(t.Context(), "web", "stop"); err != nil {
			t.Fatal(err)
		}
		d.rollback(id, "with-service")
		back := d.service(id, "service after the rollback", isReady)
		if back.PID != s.PID {
			t.Errorf("rolled back it is %+v", back)
		}
		d.kill(child)
	})
	d.sub("a pause and a resume", func(t *testing.T) {
		kvmtest.Soak(t)
		d.pause(id)
		d.resume(id)
		if got := d.service(id, "service after the resume", isReady); got.PID != s.PID || got.Restarts != s.Restarts {
			t.Errorf("got %+v, want %+v", got, s)
		}
	})
	d.sub("a pause without memory", func(t *testing.T) {
		kvmtest.Soak(t)
		if _, err := d.life().Pause(t.Context(), id, api.PauseRequest{FilesystemOnly: true}); err != nil {
			t.Fatal(err)
		}
		d.resume(id)
		if got := d.service(id, "service after the boot", isReady); got.Restarts != 0 {
			t.Errorf("got %+v", got)
		}
	})
	d.kill(id)
	if err := d.c.DeleteSnapshot(t.Context(), "with-service", client.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// A service runs on without the daemon, which finds it again.
func TestServicesOutliveTheDaemon(t *testing.T) {
	kvmtest.Soak(t) // short form: the engine's tests of services over the fake VMM
	first, d := shared(t), secondDaemon(t)
	if err := cloneStore(first, d); err != nil {
		t.Fatal(err)
	}
	d.start()
	n := 1
	id := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n,
		Services: []api.NamedService{{Name: "web", ServiceSpec: web(8902)}}}).OK()[0].ID
	s := d.service(id, "service is ready", isReady)
	eventually(t, "service in the list", func() bool {
		got, err := d.c.Sandbox(t.Context(), id)
		return err == nil && len(got.Services) == 1 && got.Services[0].State == "ready"
	})
	d.sh(id, "(sleep 3; kill -9 "+strconv.Itoa(s.PID)+") >/dev/null 2>&1 &")
	d.end(syscall.SIGKILL)
	time.Sleep(5 * time.Second) // elapses: the service crashes while there is no daemon
	d.start()
	eventually(t, "restart in the list", func() bool {
		got, err := d.c.Sandbox(t.Context(), id)
		return err == nil && len(got.Services) == 1 && got.Services[0].State == "ready" && got.Services[0].Restarts == 1
	})
	d.kill(id)
}

// A service that floods its log, forks without end and ignores SIGTERM hurts its own guest alone, and can be
// stopped.
func TestHostileServices(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	id := d.oneSandbox()
	services := client.ServicesOf(d.c, id)
	spec := api.ServiceSpec{Command: []string{"sh", "-c",
		`trap "" TERM; i=0; while [ $i -lt 200 ]; do sleep 98765 & i=$((i+1)); done; yes hostile`}, LogKiB: 4,
		StopTimeoutSecs: 0.2}
	if _, err := services.Declare(t.Context(), "bad", spec); err != nil {
		t.Fatal(err)
	}
	d.service(id, "flood", func(s api.Service) bool { return s.LogLostBytes > 10<<20 })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // a reader that is slow, and leaves
	slow := &slowReader{}
	_ = services.Log(ctx, "bad", -1, true, slow)
	cancel()
	if !strings.Contains(slow.text.String(), "bytes of this log are gone]") {
		t.Errorf("the reader got %.200q", slow.text.String())
	}
	if s, err := services.Change(t.Context(), "bad", "stop"); err != nil || s.State != "stopped" {
		t.Fatalf("%+v, %v", s, err)
	}
	left := d.sh(id, "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done 2>/dev/null | "+
		"grep -c 'sleep 9876[5]' || true")
	if strings.TrimSpace(left) != "0" {
		t.Errorf("%s processes are left", left)
	}
	if err := services.Remove(t.Context(), "bad"); err != nil {
		t.Error(err)
	}
	if err := services.Log(t.Context(), "bad", -1, false, io.Discard); !client.IsNotFound(err) {
		t.Errorf("the log of a removed service: %v", err)
	}
	d.kill(id)
}

// slowReader takes a moment for each piece.
type slowReader struct{ text strings.Builder }

func (s *slowReader) Write(p []byte) (int, error) {
	time.Sleep(50 * time.Millisecond) // elapses: a reader slower than the flood
	if s.text.Len() < 1<<20 {
		s.text.Write(p)
	}
	return len(p), nil
}

// A server that hangs is restarted. A pause and a branch, during which it does not answer, are no failures.
func TestAHungServiceIsRestarted(t *testing.T) {
	kvmtest.Soak(t) // short form: TestLivenessRestartsAService of internal/guest/agent
	d := shared(t)
	n := 1
	spec := web(8902)
	spec.Liveness = &api.ServiceLiveness{IntervalSecs: 1, TimeoutSecs: 2, FailureThreshold: 2}
	id := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n,
		Services: []api.NamedService{{Name: "web", ServiceSpec: spec}}}).OK()[0].ID
	was := d.service(id, "service is ready", isReady)
	life := client.Life{Client: d.c}
	if _, err := life.Pause(t.Context(), id, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second) // elapses: more than all checks that would fail
	if _, err := life.Resume(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	res, err := d.c.Branch(t.Context(), id, api.BranchRequest{Tag: "hung", Mode: api.BranchFull, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	child := res.Children[0].ID
	t.Cleanup(func() {
		_ = d.c.Kill(context.Background(), child)
		if err := d.c.DeleteSnapshot(context.Background(), res.Tag, client.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(10 * time.Second) // elapses: time for checks in both
	for _, sb := range []string{id, child} {
		if now := d.service(sb, "service is ready", isReady); now.PID != was.PID || now.Restarts != 0 {
			t.Errorf("%s: %+v, was %+v", sb, now, was)
		}
	}
	d.sh(child, "kill -STOP "+strconv.Itoa(was.PID))
	now := d.service(child, "restart", func(s api.Service) bool { return isReady(s) && s.PID != was.PID })
	if now.Restarts != 1 {
		t.Errorf("got %+v", now)
	}
	if now := d.service(id, "service is ready", isReady); now.PID != was.PID {
		t.Errorf("the source's: %+v", now)
	}
}
