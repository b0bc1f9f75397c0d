package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

func TestAProgramThatDoesNotExist(t *testing.T) {
	d := shared(t)
	id := d.oneSandbox()
	d.unchanged()
	_, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"no-such-program"}})
	wantError(t, err, api.CodeInvalid, id, "no-such-program", "not found")
	_, err = d.c.ExecStream(t.Context(), id, client.ExecOptions{Args: []string{"no-such-program"}})
	if !errors.Is(err, client.ErrNoProgram) || !strings.Contains(err.Error(), "no-such-program") || !strings.Contains(err.Error(), id) {
		t.Errorf("streaming: %v", err)
	}
	_, err = d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"/etc/passwd"}})
	wantError(t, err, api.CodeInvalid, id, "/etc/passwd", "permission denied")
	_, err = d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}, Cwd: "/no/such/folder"})
	wantError(t, err, api.CodeInvalid, id, "/no/such/folder")
	_, err = d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}, User: "nobody-here"})
	wantError(t, err, api.CodeInvalid, id, "nobody-here")
	_, err = d.c.Exec(t.Context(), id, api.ExecRequest{})
	wantError(t, err, api.CodeInvalid, "args")
	for program, want := range map[string]int{"no-such-program": 127, "/etc/passwd": 126} {
		if code, _, errs := d.cli("exec", id, "--", program); code != want || !strings.Contains(errs, program) {
			t.Errorf("the CLI's exit code for %s is %d, want %d: %s", program, code, want, errs)
		}
	}
	d.alive(api.SandboxInfo{ID: id})
}

// floodScript prints the given number of bytes, in equal lines of 10 bytes.
func floodScript(bytes int) string { return fmt.Sprintf("yes 123456789 | head -c %d", bytes) }

// pattern checks a stream against the output of floodScript.
type pattern struct {
	n     int64
	wrong bool
}

func (p *pattern) Write(b []byte) (int, error) {
	const lines = "123456789\n123456789\n123456789\n123456789\n123456789\n123456789\n123456789\n123456789\n"
	for rest := b; len(rest) > 0; {
		want := lines[p.n%10:]
		k := min(len(rest), len(want))
		p.wrong = p.wrong || string(rest[:k]) != want[:k]
		p.n += int64(k)
		rest = rest[k:]
	}
	return len(b), nil
}

func TestAHundredMegabytesOfOutput(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	id := d.oneSandbox()
	d.unchanged()
	before := d.peakMemory()
	const flood = 100_000_000
	d.sub("collected", func(t *testing.T) {
		r, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", floodScript(flood)}, TimeoutSecs: 600})
		if err != nil {
			t.Fatal(err)
		}
		var p pattern
		_, _ = p.Write([]byte(r.Stdout))
		const kept = 8 << 20 // docs/use/api.md
		if r.ExitCode != 0 || p.wrong || p.n != kept || r.DroppedBytes != flood-kept {
			t.Errorf("exit code %d, %d bytes kept, as printed: %v, %d dropped", r.ExitCode, p.n, !p.wrong, r.DroppedBytes)
		}
	})
	d.sub("streamed", func(t *testing.T) { // fewer bytes: an emulated CPU transfers a few MB/s
		const flood = flood / 10
		var p pattern
		s, err := d.c.ExecStream(t.Context(), id, client.ExecOptions{Args: []string{"sh", "-c", floodScript(flood)}, Stdout: &p})
		if err != nil || s.ExitCode != 0 || p.wrong || p.n != flood {
			t.Errorf("got %+v, %v; %d bytes, as printed: %v", s, err, p.n, !p.wrong)
		}
	})
	if grown := d.peakMemory() - before; grown > flood*3/4 {
		t.Errorf("the daemon's memory grew by %d bytes", grown)
	}
	d.alive(api.SandboxInfo{ID: id})
}

// peakMemory returns the daemon's peak memory use, in bytes.
func (d *daemon) peakMemory() (bytes int64) {
	d.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.pid()))
	if err != nil {
		d.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	if _, err := fmt.Sscanf(rest, "%d kB", &bytes); err != nil {
		d.t.Fatal(err)
	}
	return bytes << 10
}

// family starts sleepers in every way that might escape, marked by a word, and waits forever.
func family(mark string) string {
	return strings.ReplaceAll(`sleep 70MARK & (sleep 71MARK &) & setsid sleep 72MARK & (setsid sh -c "sleep 73MARK & sleep 74MARK" &)
		trap "" TERM HUP INT; for i in 1 2 3 4 5 6 7 8 9; do sleep 75MARK & done; echo started; wait; sleep 76MARK`, "MARK", mark)
}

// sleepers counts the processes of a family in the guest. In /proc their arguments are separated by
// zero bytes.
func (d *daemon) sleepers(id, mark string) string {
	d.t.Helper()
	return d.sh(id, "grep -zlxE '7[0-9]"+mark+"' /proc/[0-9]*/cmdline 2>/dev/null | wc -l")
}

func TestAProgramThatNeverEnds(t *testing.T) {
	d := shared(t)
	id := d.oneSandbox()
	d.unchanged()
	d.sub("is killed at the limit with all it started", func(t *testing.T) {
		r, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", family("01")}, User: "root", TimeoutSecs: 8})
		if err != nil || !r.TimedOut || r.ExitCode != 124 || r.Stdout != "started\n" {
			t.Errorf("got %+v, %v", r, err)
		}
		if n := d.sleepers(id, "01"); n != "0" {
			t.Errorf("%s of its children live on", n)
		}
	})
	d.sub("is killed when its client goes", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out := &watcher{word: "started", seen: cancel}
		_, err := d.c.ExecStream(ctx, id, client.ExecOptions{Args: []string{"sh", "-c", family("02")}, User: "root", Stdout: out})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		eventually(t, "end of its children", func() bool { return d.sleepers(id, "02") == "0" })
	})
	d.sub("is killed when the CLI is interrupted", func(t *testing.T) {
		cmd := exec.Command(d.forkd(), "exec", "-u", "root", id, "--", "sh", "-c", family("03"))
		out := &watcher{word: "started", seen: func() { _ = cmd.Process.Signal(syscall.SIGINT) }}
		cmd.Env, cmd.Stdout = d.env(), out
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("got %v", err)
		}
		eventually(t, "end of its children", func() bool { return d.sleepers(id, "03") == "0" })
	})
	d.alive(api.SandboxInfo{ID: id})
}

// watcher calls seen once, when a word has arrived.
type watcher struct {
	word string
	seen func()
	buf  bytes.Buffer
}

func (w *watcher) Write(b []byte) (int, error) {
	w.buf.Write(b)
	if w.seen != nil && strings.Contains(w.buf.String(), w.word) {
		w.seen()
		w.seen = nil
	}
	return len(b), nil
}

func TestAProgramThatForks(t *testing.T) {
	d := shared(t)
	id := d.oneSandbox()
	d.unchanged()
	d.sub("and waits", func(t *testing.T) {
		r, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", `for i in 1 2 3 4 5 6 7 8; do (echo $i; exec sleep 0.1) & done; wait; exit 9`}})
		if err != nil || r.ExitCode != 9 || len(strings.Fields(r.Stdout)) != 8 {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	d.sub("and leaves a child that holds its output", func(t *testing.T) {
		began := time.Now()
		r, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", "sleep 7704 & echo gone"}, User: "root", TimeoutSecs: 60})
		if err != nil || r.ExitCode != 0 || r.Stdout != "gone\n" || r.TimedOut {
			t.Errorf("got %+v, %v after %s", r, err, time.Since(began))
		}
		if n := d.sleepers(id, "04"); n != "1" {
			t.Errorf("%s of its children live, want the one", n)
		}
		d.sh(id, "kill $(pidof sleep) 2>/dev/null; true")
	})
	d.alive(api.SandboxInfo{ID: id})
}

func TestExitCodes(t *testing.T) {
	d := shared(t)
	id := d.oneSandbox()
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -9 $$": 137, "kill -TERM $$": 143} {
		r, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", script}})
		if err != nil || r.ExitCode != want {
			t.Errorf("%s: %d, %v, want %d", script, r.ExitCode, err, want)
		}
	}
}

// Endless code in the warmed interpreter is interrupted. Variables defined before are still there.
func TestEvalThatNeverEnds(t *testing.T) {
	d := shared(t)
	sb := d.fork(1)[0]
	d.eval(sb.ID, "kept = 5")
	_, err := d.c.Eval(t.Context(), sb.ID, api.EvalRequest{Code: "while True: pass", TimeoutSecs: 1})
	wantError(t, err, api.CodeTimeout, sb.ID, "timed out after 1s", "eval_timeout")
	if got := d.eval(sb.ID, "kept"); got != "5" {
		t.Errorf("what was defined before is %q", got)
	}
	_, err = d.c.Eval(t.Context(), sb.ID, api.EvalRequest{Code: "1", Language: "cobol"})
	wantError(t, err, api.CodeInvalid, "cobol")
}
