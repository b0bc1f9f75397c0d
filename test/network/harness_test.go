package network

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// patience limits waits for events. It is long, because a slow machine is no failure.
const patience = 2 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %s", what, patience)
		}
	}
}

// allow replaces a sandbox's policy by a list of rules.
func (w *world) allow(t *testing.T, id string, rules ...string) {
	t.Helper()
	w.set(t, id, api.SetNetworkRequest{Network: &api.NetworkPolicy{Allow: rules}})
}

func (w *world) set(t *testing.T, id string, req api.SetNetworkRequest) api.SandboxNetwork {
	t.Helper()
	now, err := w.Client.SetNetwork(t.Context(), id, req)
	if err != nil {
		t.Fatalf("policy of %s: %v", id, err)
	}
	return now
}

// slow is the duration from which a step is logged. Such a step has often waited for something.
const slow = 5 * time.Second

// run runs statements in a sandbox's interpreter, and returns the output.
func (w *world) run(t *testing.T, id, code string) string {
	t.Helper()
	began := time.Now()
	defer func() {
		if took := time.Since(began); took > slow {
			t.Logf("%s: %.80q: %s", id, code, took.Round(time.Millisecond))
		}
	}()
	r, err := w.Client.Eval(t.Context(), id, api.EvalRequest{Code: code + "\nNone", TimeoutSecs: patience.Seconds()})
	switch {
	case err != nil:
		t.Fatalf("%s: %q: %v", id, code, err)
	case r.Error != nil:
		t.Fatalf("%s: %q: %s", id, code, *r.Error)
	}
	return r.Stdout
}

// outcome is the result of an expression in a guest.
type outcome struct {
	Value   json.RawMessage
	Error   string // the error's name, or empty
	Text    string
	Seconds float64 // duration in the guest
}

func (o outcome) String() string {
	if o.Error != "" {
		return fmt.Sprintf("%s (%s) after %.2f s", o.Error, o.Text, o.Seconds)
	}
	return fmt.Sprintf("%s after %.2f s", o.Value, o.Seconds)
}

// try evaluates an expression in a guest. The expression may fail.
func (w *world) try(t *testing.T, id, expr string) (out outcome) {
	t.Helper()
	text := w.run(t, id, "tell(lambda: "+expr+")")
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s: %q says %q: %v", id, expr, text, err)
	}
	return out
}

// value evaluates an expression and fails the test on an error.
func value[T any](t *testing.T, w *world, id, expr string) (v T) {
	t.Helper()
	out := w.try(t, id, expr)
	if out.Error != "" {
		t.Fatalf("%s: %s: %s", id, expr, out)
	}
	if err := json.Unmarshal(out.Value, &v); err != nil {
		t.Fatalf("%s: %s: %s: %v", id, expr, out, err)
	}
	return v
}

// wantText checks an expression's value.
func (w *world) wantText(t *testing.T, id, expr, want string) {
	t.Helper()
	if got := value[string](t, w, id, expr); got != want {
		t.Errorf("%s: %s: %q, want %q", id, expr, got, want)
	}
}

// fast is the maximum time of a refusal in seconds. A timeout of a program's resolver or its kernel
// takes 3 s and more. Emulated CPUs are slow.
const fast = 1.0

// wantRefused checks that an expression fails fast, with one of these errors.
func (w *world) wantRefused(t *testing.T, id, expr string, errs ...string) {
	t.Helper()
	out := w.try(t, id, expr)
	switch {
	case !slices.Contains(errs, out.Error):
		t.Errorf("%s: %s: %s, want %q", id, expr, out, errs)
	case out.Seconds > fast:
		t.Errorf("%s: %s: %s, want it within %.0f s", id, expr, out, fast)
	}
}

// root runs a script in a sandbox as root.
func (w *world) root(t *testing.T, id, script string) {
	t.Helper()
	r, err := w.Client.Exec(t.Context(), id,
		api.ExecRequest{Args: []string{"sh", "-c", script}, User: "root", TimeoutSecs: patience.Seconds()})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%s: %q: %+v, %v", id, script, r, err)
	}
}

// cli runs the command line against the daemon, and returns the output.
func (w *world) cli(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), w.Forkd(), args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	cmd.Env = []string{"FORKD_URL=" + w.URL(), "HOME=" + w.Dir, "PATH=" + os.Getenv("PATH"), "TERM=dumb"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("forkd %s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out)
}

// branch makes a live snapshot of a sandbox, and children of it. They are removed at the end of the
// test.
func (w *world) branch(t *testing.T, id string, req api.BranchRequest) []api.SandboxInfo {
	t.Helper()
	res, err := w.Client.Branch(t.Context(), id, req)
	if err != nil {
		t.Fatalf("branch %s: %v", id, err)
	}
	t.Cleanup(func() {
		for _, sb := range res.Children {
			if err := w.Kill(sb.ID); sb.ID != "" && err != nil && !client.IsNotFound(err) {
				t.Error(err)
			}
		}
		if err := w.Client.DeleteSnapshot(context.Background(), res.Tag, client.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for _, sb := range res.Children {
		if sb.Error != "" || sb.Warning != "" {
			t.Fatalf("child %d of %s: %s%s", sb.Index, res.Tag, sb.Error, sb.Warning)
		}
	}
	return res.Children
}

// refusals returns the lines of a sandbox's network log, as JSON.
func (w *world) refusals(t *testing.T, id string) string {
	t.Helper()
	var all strings.Builder
	err := w.Client.NetworkLog(t.Context(), id, false, func(line []byte) error {
		all.Write(line)
		return all.WriteByte('\n')
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
