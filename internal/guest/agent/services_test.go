package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/servicewire"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

func shell(name, script string) servicespec.Spec {
	return servicespec.Spec{Name: name, Command: []string{"sh", "-c", script},
		Backoff: servicespec.Backoff{InitialMS: 10, MaxMS: 40}, StopMS: 200}
}

func (b *bench) declare(t *testing.T, spec servicespec.Spec) {
	t.Helper()
	if _, err := b.DeclareService(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

// until waits for a state of the only service.
func (b *bench) until(t *testing.T, what string, ok func(servicespec.Status) bool) servicespec.Status {
	t.Helper()
	var last servicewire.List
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		l, err := b.Services(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if last = l; len(l.Services) == 1 && ok(l.Services[0]) {
			return l.Services[0]
		}
	}
	t.Fatalf("no service that is %s: %+v", what, last)
	return servicespec.Status{}
}

func state(want servicespec.State) func(servicespec.Status) bool {
	return func(s servicespec.Status) bool { return s.State == want }
}

func TestAServiceRestartsAfterAKill(t *testing.T) {
	notices := make(chan struct{}, 100)
	b := startAgent(t, func(c *agent.Config) {
		c.DialNotice = func(context.Context) (net.Conn, error) {
			notices <- struct{}{}
			near, far := net.Pipe()
			return near, far.Close()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	noticed := make(chan struct{})
	go func() { defer close(noticed); b.agent.ServeNotices(ctx) }()
	defer func() { cancel(); <-noticed }()
	b.declare(t, shell("web", "echo up; exec sleep 1000"))
	st := b.until(t, "ready and has written", func(s servicespec.Status) bool {
		return s.State == servicespec.IsReady && s.LogBytes == 3
	})
	if err := unix.Kill(st.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again := b.until(t, "restarted", func(s servicespec.Status) bool {
		return s.State == servicespec.IsReady && s.PID != st.PID && s.LogBytes == 6
	})
	if again.Restarts != 1 || again.ExitCode == nil || *again.ExitCode != 137 {
		t.Errorf("got %+v", again)
	}
	if got := b.log(t, "web", -1); got != "up\nup\n" {
		t.Errorf("log %q", got)
	}
	if got := b.log(t, "web", 1); got != "up\n" {
		t.Errorf("last line %q", got)
	}
	select {
	case <-notices:
	case <-time.After(10 * time.Second):
		t.Error("the host got no notice")
	}
}

func (b *bench) log(t *testing.T, name string, lines int) string {
	t.Helper()
	r, err := b.ServiceLog(t.Context(), name, lines, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

func TestPoliciesOfRestarts(t *testing.T) {
	for name, c := range map[string]struct {
		policy   servicespec.Policy
		exit     int
		most     int
		state    servicespec.State
		restarts int64
	}{
		"never, with 0":       {servicespec.Never, 0, 0, servicespec.Stopped, 0},
		"never, with 3":       {servicespec.Never, 3, 0, servicespec.Failed, 0},
		"on failure, with 0":  {servicespec.OnFailure, 0, 0, servicespec.Stopped, 0},
		"on failure, 2 times": {servicespec.OnFailure, 3, 2, servicespec.Failed, 2},
		"always, 2 times":     {servicespec.Always, 0, 2, servicespec.Failed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := startAgent(t)
			spec := shell("job", fmt.Sprintf("exit %d", c.exit))
			spec.Restart, spec.MaxRestarts = c.policy, c.most
			b.declare(t, spec)
			l, err := b.Services(t.Context(), 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			// A program that ends at once may count as ready first.
			st := b.until(t, string(c.state), state(c.state))
			if st.Restarts != c.restarts || st.ExitCode == nil || *st.ExitCode != c.exit {
				t.Errorf("got %+v after %+v", st, l)
			}
		})
	}
}

func TestChecksOfReadiness(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	b := startAgent(t)
	spec := shell("web", "exec sleep 1000")
	spec.Port, spec.Ready.IntervalMS = port, 20
	b.declare(t, spec)
	if st := b.until(t, "starting", state(servicespec.Starting)); st.State != servicespec.Starting {
		t.Fatal("ready without a server")
	}
	if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b.until(t, "ready", state(servicespec.IsReady))

	flag := filepath.Join(t.TempDir(), "flag")
	spec.Port, spec.Ready.Command = 0, []string{"test", "-e", flag}
	b.declare(t, spec)
	b.until(t, "starting", state(servicespec.Starting))
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.until(t, "ready", state(servicespec.IsReady))

	// The server sends no HTTP, so the check fails until its time is up.
	spec.Port, spec.Ready.Command, spec.Ready.HTTP, spec.Ready.TimeoutMS = port, nil, "/x", 100
	spec.Restart = servicespec.Never
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = c.Write([]byte("nonsense\r\n\r\n"))
			c.Close()
		}
	}()
	b.declare(t, spec)
	if st := b.until(t, "failed", state(servicespec.Failed)); !strings.Contains(st.Error, "not ready after 100ms") {
		t.Errorf("error %q", st.Error)
	}
}

// A service that is ready and then fails its check is restarted, with the cause in its state.
func TestLivenessRestartsAService(t *testing.T) {
	for policy, want := range map[servicespec.Policy]servicespec.State{
		servicespec.Always: servicespec.IsReady, servicespec.OnFailure: servicespec.IsReady, servicespec.Never: servicespec.Failed,
	} {
		t.Run(string(policy), func(t *testing.T) {
			b := startAgent(t)
			sick, up := filepath.Join(t.TempDir(), "sick"), filepath.Join(t.TempDir(), "up")
			spec := shell("web", "trap '' TERM; rm -f "+sick+"; touch "+up+"; while :; do sleep 1000 & wait; done") // SIGTERM is not enough
			spec.Ready.Command = []string{"sh", "-c", "test -e " + up + " && ! test -e " + sick + " || { echo secret; exit 7; }"}
			spec.Restart = policy
			spec.Liveness = servicespec.Liveness{IntervalMS: 1000, FailureThreshold: 2}
			b.declare(t, spec)
			was := b.until(t, "ready", state(servicespec.IsReady))
			if err := os.WriteFile(sick, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			said := b.until(t, "failing", func(s servicespec.Status) bool { return s.Error != "" })
			if said.Error != "its check failed 2 times in a row: exit code 7" || said.State == servicespec.IsReady {
				t.Errorf("got %+v", said)
			}
			now := b.until(t, string(want), func(s servicespec.Status) bool { return s.State == want && s.PID != was.PID })
			if restarts := map[bool]int64{true: 1}[want == servicespec.IsReady]; now.Restarts != restarts {
				t.Errorf("restarted %d times, want %d", now.Restarts, restarts)
			}
		})
	}
}

// A hostile service ignores SIGTERM, forks without end and floods its log.
// A stop sends the declared signal, and kills after the time.
func TestStopSignalsOfServices(t *testing.T) {
	for sig, want := range map[string]int{"": 15, "SIGQUIT": 3, "10": 10, "SIGRTMIN+3": 128 + 37, "usr2": 137} {
		t.Run("by "+sig, func(t *testing.T) {
			t.Parallel()
			b := startAgent(t)
			spec := shell("web", "trap 'exit 15' TERM; trap 'exit 3' QUIT; trap 'exit 10' USR1; trap '' USR2; echo up; "+
				"while :; do sleep 0.05; done")
			spec.StopSignal, spec.StopMS = sig, 5000
			if want == 137 {
				spec.StopMS = 200
			}
			b.declare(t, spec)
			b.until(t, "up", func(s servicespec.Status) bool { return s.LogBytes == 3 })
			if _, err := b.ChangeService(t.Context(), "web", "stop"); err != nil {
				t.Fatal(err)
			}
			st := b.until(t, "stopped", state(servicespec.Stopped))
			if st.ExitCode == nil || *st.ExitCode != want {
				t.Errorf("got %+v, want exit code %d", st, want)
			}
		})
	}
	bad := shell("bad", "sleep 1")
	bad.StopSignal = "SIGFOO"
	if _, err := startAgent(t).DeclareService(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "SIGFOO") {
		t.Errorf("an unknown signal: %v", err)
	}
}

// A hostile service ignores SIGTERM, forks without end and floods its log.
func TestAHostileServiceIsStopped(t *testing.T) {
	b := startAgent(t)
	spec := shell("bad", `trap "" TERM; while :; do sleep 987654 & yes | head -c 200000; done`)
	spec.LogBytes = servicespec.MinLog
	b.declare(t, spec)
	st := b.until(t, "flooding", func(s servicespec.Status) bool { return s.LogLost > 1<<20 })
	if kept := st.LogBytes - st.LogLost; kept != servicespec.MinLog {
		t.Errorf("%d bytes are kept", kept)
	}
	if got := b.log(t, "bad", -1); !strings.HasPrefix(got, "[forkd: ") || !strings.Contains(got, "bytes of this log are gone]\n") ||
		len(got) > 100+servicespec.MaxLog {
		t.Errorf("the log of %d bytes begins with %.80q", len(got), got)
	}
	if _, err := b.ChangeService(t.Context(), "bad", "stop"); err != nil {
		t.Fatal(err)
	}
	b.until(t, "stopped", state(servicespec.Stopped))
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	for _, f := range all {
		if line, err := os.ReadFile(f); err == nil && string(line) == "sleep\x00987654\x00" {
			t.Errorf("%s is left", f)
		}
	}
}

func TestAFollowedLog(t *testing.T) {
	b := startAgent(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	b.declare(t, shell("web", "echo first; cat "+fifo+"; exec sleep 1000"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := b.ServiceLog(ctx, "web", -1, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	read("first\n")
	if err := os.WriteFile(fifo, []byte("second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read("second\n")
}

func TestServicesAreRefused(t *testing.T) {
	b := startAgent(t)
	var refused *agentclient.FileError
	for what, spec := range map[string]servicespec.Spec{
		"want always": {Name: "a", Command: []string{"true"}, Restart: "sometimes"},
		"no program":  {Name: "a"},
		"port":        {Name: "a", Command: []string{"true"}, Port: 70000},
		"needs":       {Name: "a", Command: []string{"true"}, Ready: servicespec.Ready{HTTP: "/"}},
		"name":        {Name: "A B", Command: []string{"true"}},
	} {
		if _, err := b.DeclareService(t.Context(), spec); !errors.As(err, &refused) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := b.ChangeService(t.Context(), "none", "stop"); !errors.As(err, &refused) || refused.Code != 404 {
		t.Error(err)
	}
	for i := range servicespec.MaxServices {
		b.declare(t, shell(fmt.Sprintf("s%d", i), "exec sleep 1000"))
	}
	if _, err := b.DeclareService(t.Context(), shell("more", "true")); !errors.As(err, &refused) || refused.Code != 409 {
		t.Error(err)
	}
}

// A boot from the disk alone starts the services that were not stopped.
func TestServicesOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dir", "services.json")
	with := func(c *agent.Config) { c.ServicesFile = file }
	t.Run("first", func(t *testing.T) {
		b := startAgent(t, with)
		b.declare(t, shell("held", "exec sleep 1000"))
		b.declare(t, shell("web", "exec sleep 1000"))
		if _, err := b.ChangeService(t.Context(), "held", "stop"); err != nil {
			t.Fatal(err)
		}
	})
	b := startAgent(t, with)
	l, err := b.Services(t.Context(), 10*time.Second)
	if err != nil || len(l.Services) != 2 || l.Services[0].State != servicespec.Stopped ||
		l.Services[1].State != servicespec.IsReady {
		t.Errorf("%+v, %v", l, err)
	}
	if err := os.WriteFile(file, bytes.Repeat([]byte("["), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err = startAgent(t, with).Services(t.Context(), 0); err != nil || len(l.Services) != 0 {
		t.Errorf("of a broken file: %+v, %v", l, err)
	}
}

func TestServicesOfAnIdentity(t *testing.T) {
	b := startAgent(t)
	specs, err := json.Marshal([]servicespec.Spec{shell("web", "exec sleep 1000")})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a host may repeat an identity
		b.become(t, func(r *identityReq) { r.Services = specs })
	}
	if st := b.until(t, "ready", state(servicespec.IsReady)); st.Restarts != 0 {
		t.Errorf("%+v", st)
	}
	r := b.become(t, func(r *identityReq) { r.Services = []byte(`[{"name":"UP"}]`) })
	if last := r.GetSteps()[len(r.GetSteps())-1]; last.GetName() != "services" || last.GetError() == "" {
		t.Errorf("%+v", r.GetSteps())
	}
}
