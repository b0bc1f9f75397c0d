package reboot

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/machine/appliance"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

const (
	tag       = "pyagent"
	nPaused   = 50
	nRunning  = 20
	dueSecs   = 5 // deadline of a paused sandbox, which passes during the reboot
	patience  = 6 * time.Minute
	callLimit = patience // calls wait for one another and for their turn
)

// world is a machine for this test only.
type world struct {
	t    *testing.T
	name string
	c    *client.Client
}

// forkd runs the program from `make build`.
func (w *world) forkd(args ...string) []byte {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), patience)
	defer cancel()
	program, err := filepath.Abs(filepath.Join("..", "..", "bin", "forkd"))
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("forkd %s: %v\n%s%s", strings.Join(args, " "), err, out, stderrOf(err))
	}
	return out
}

func stderrOf(err error) []byte {
	if e, ok := err.(*exec.ExitError); ok {
		return e.Stderr
	}
	return nil
}

// start starts the machine, and finds its daemon.
func (w *world) start() {
	w.t.Helper()
	w.forkd("machine", "start", "--name", w.name, "--memory", "4096", "--wait", "5m")
	var status struct{ API string }
	if err := json.Unmarshal(w.forkd("machine", "status", "--name", w.name, "--json"), &status); err != nil {
		w.t.Fatal(err)
	}
	m, err := appliance.Open(w.name)
	if err != nil {
		w.t.Fatal(err)
	}
	token, err := m.Token()
	if err == nil {
		w.c, err = client.New(client.Options{URL: "tcp://" + status.API, Token: token})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.c.Close() })
	w.t.Setenv("FORKD_URL", "tcp://"+status.API)
	w.t.Setenv("FORKD_TOKEN", token)
}

func (w *world) fork(n int, l api.SandboxLife) (ids []string) {
	w.t.Helper()
	r, err := w.c.Fork(w.t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag, N: &n, SandboxLife: l})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sb := range r.Failed() {
		w.t.Fatalf("fork: %s", sb.Error)
	}
	for _, sb := range r.OK() {
		ids = append(ids, sb.ID)
	}
	return ids
}

// each calls do for many IDs, several in parallel.
func each(ids []string, do func(id string)) {
	const atOnce = 4
	turns := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, id := range ids {
		turns <- struct{}{}
		all.Go(func() { do(id); <-turns })
	}
	all.Wait()
}

// After a reboot of the host, paused sandboxes resume on traffic, all in parallel. Sandboxes that
// ran are listed as ended by the reboot. A deadline that passed meanwhile has been applied.
func TestAHostIsRebooted(t *testing.T) {
	kvmtest.Soak(t)
	w := &world{t: t, name: kvmtest.Machine(t) + "-reboot"}
	t.Cleanup(func() { w.forkd("machine", "rm", "--yes", "--name", w.name) })
	w.start()
	w.forkd("demo", "--count", "0")
	paused := w.fork(nPaused, api.SandboxLife{AutoResume: true, AtEnd: api.AtEndPause})
	running := w.fork(nRunning, api.SandboxLife{})
	due := w.fork(1, api.SandboxLife{})
	life := client.Life{Client: w.c}
	each(append(paused, due...), func(id string) {
		if _, err := w.c.Eval(t.Context(), id, api.EvalRequest{Code: "kept = '" + id + "'"}); err != nil {
			t.Error(err)
		}
		if _, err := life.Pause(t.Context(), id, api.PauseRequest{}); err != nil {
			t.Error(err)
		}
	})
	soon := float64(dueSecs)
	if _, err := life.SetLife(t.Context(), due[0], api.LifeRequest{TTLSecs: &soon}); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		return
	}
	w.forkd("machine", "stop", "--name", w.name)
	w.start()
	for _, id := range running {
		info, err := w.c.Sandbox(t.Context(), id)
		if err != nil || info.Status != api.SandboxFailed || !strings.Contains(info.Reason, "rebooted") {
			t.Errorf("one that ran: %+v, %v", info, err)
		}
	}
	if list := string(w.forkd("ps")); strings.Count(list, "rebooted") != nRunning {
		t.Errorf("forkd ps:\n%s", list)
	}
	gone := func() bool {
		_, err := w.c.Sandbox(t.Context(), due[0])
		return client.IsNotFound(err)
	}
	for end := time.Now().Add(patience); !gone(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("one whose deadline has passed is still there")
		}
	}
	var all sync.WaitGroup
	for _, id := range paused {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), callLimit)
			defer cancel()
			r, err := w.c.Eval(ctx, id, api.EvalRequest{Code: "kept", TimeoutSecs: callLimit.Seconds()})
			if err != nil || r.Result == nil || *r.Result != "'"+id+"'" {
				t.Errorf("resume of %s: %+v, %v", id, r, err)
			}
		})
	}
	all.Wait()
}
