package operation

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/test/harness"
)

const tag = "operation"

// world is a daemon in a machine, with Prometheus and a collector beside it.
type world struct {
	*harness.Machine
	prometheus
	spans  *spans
	ids    []string // long-lived sandboxes
	config string   // file of the daemon's flags
}

// spans are the names of the spans that the collector received.
type spans struct {
	mu   sync.Mutex
	seen map[string]int
	rest []byte // an incomplete line
}

func (s *spans) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, b...)
	for {
		line, rest, ok := bytes.Cut(s.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		s.seen[string(line)]++
		s.rest = rest
	}
}

func (s *spans) names() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]int{}
	for name, n := range s.seen {
		all[name] = n
	}
	return all
}

// startCollector builds and starts the collector. It returns its port.
func startCollector(t *testing.T, s *spans) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "collector")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = "collector"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the collector: %v: %s", err, out)
	}
	address := freeAddress(t)
	cmd := exec.Command(binary, address)
	cmd.Stdout = s
	start(t, cmd, &testLog{t: t})
	_, port, _ := strings.Cut(address, ":")
	return port
}

// testLog writes a program's messages into the test's log.
type testLog struct{ t *testing.T }

func (l *testLog) Write(b []byte) (int, error) {
	l.t.Logf("%s", b)
	return len(b), nil
}

// try runs a command of the CLI on the daemon.
func (w *world) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "../../bin/forkd", append([]string{"--url", w.URL, "--token", w.Token}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("forkd %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// root runs a shell's command as root in the machine itself.
func (w *world) root(t *testing.T, command string) string {
	t.Helper()
	cmd := exec.Command("../../bin/forkd", "machine", "exec", "--name", w.Name, "--", "/bin/sh", "-c", command)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("in the machine: %s: %v: %s", command, err, errs.String())
	}
	return strings.TrimSpace(out.String())
}

// pids returns the IDs of the machine's processes whose command line has a text.
func (w *world) pids(t *testing.T, text string) []string {
	t.Helper()
	return strings.Fields(w.root(t, fmt.Sprintf(
		`for d in /proc/[0-9]*; do tr '\0' ' ' < $d/cmdline 2>/dev/null | grep -q '^%s' && echo ${d#/proc/}; done; true`, text)))
}

const daemonLine = "/usr/bin/forkd serve "

// fork makes n sandboxes that the phase's own work does not touch.
func (w *world) fork(t *testing.T, n int) []string {
	t.Helper()
	return strings.Fields(string(w.Forkd(t, "-q", "fork", tag, "-n", fmt.Sprint(n))))
}

// answers reports the sandboxes that do not answer, or lost their state.
func (w *world) answers(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		var out string
		var err error
		for range 40 { // a daemon that was just started adopts its sandboxes one by one
			if out, err = w.try("eval", id, "mark"); err == nil {
				break
			}
			time.Sleep(500 * time.Millisecond) // elapses: between two tries
		}
		if err != nil || strings.Trim(out, "'") != id {
			t.Errorf("%s: its mark is %q, %v", id, out, err)
		}
	}
}

// mark gives each sandbox a value in memory that answers looks for.
func (w *world) mark(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		w.Forkd(t, "eval", id, fmt.Sprintf("mark = %q", id))
	}
}

// work uses sandboxes continuously, one request after the other.
type work struct {
	once     sync.Once
	stop     chan struct{}
	done     chan struct{}
	rounds   atomic.Int64
	mu       sync.Mutex
	failures []string
}

func (w *world) startWork() *work {
	k := &work{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(k.done)
		for n := 0; ; n++ {
			select {
			case <-k.stop:
				return
			default:
			}
			if err := w.round(n); err != nil {
				k.mu.Lock()
				k.failures = append(k.failures, err.Error())
				k.mu.Unlock()
				time.Sleep(time.Second) // elapses: a client that waits before its next try
			}
			k.rounds.Add(1)
		}
	}()
	return k
}

// end ends the work after its present round. It may be called again.
func (k *work) end() (rounds int64, failures []string) {
	k.once.Do(func() { close(k.stop) })
	<-k.done
	return k.rounds.Load(), k.failures
}

// round is the life of one sandbox with most operations.
func (w *world) round(n int) (err error) {
	made := fmt.Sprintf("%s-%d", tag, n)
	out, err := w.try("-q", "fork", tag)
	if err != nil {
		return err
	}
	ids := []string{strings.TrimSpace(out)}
	defer func() {
		if e := w.clean(ids, made); err == nil {
			err = e
		}
	}()
	for _, args := range [][]string{
		{"eval", ids[0], "x = 1"},
		{"exec", ids[0], "--", "sh", "-c", "echo a > /tmp/a; sync"},
		{"branch", ids[0], "--tag", made},
		{"eval", ids[0], "x = 2"},
		{"rollback", ids[0], made},
		{"pause", ids[0]},
		{"resume", ids[0]},
	} {
		if _, err := w.try(args...); err != nil {
			return err
		}
	}
	out, err = w.try("eval", ids[0], "x")
	if err == nil && out != "1" {
		return fmt.Errorf("%s: x is %s after the rollback, want 1", ids[0], out)
	}
	return err
}

func (w *world) clean(ids []string, snapshot string) error {
	_, err := w.try(slices.Concat([]string{"kill"}, ids)...)
	if _, e := w.try("snapshot", "rm", snapshot); err == nil {
		err = e
	}
	return err
}
