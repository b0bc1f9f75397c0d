package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// event is one line of `go test -json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// goTest runs `go test -json` and collects the result of each test. The phase go vet has run all of vet's checks.
func goTest(ctx context.Context, env []string, args ...string) results {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-vet=off"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	c := newCollector(os.Stdout)
	err := pipeTo(cmd, c.read)
	r := c.results
	if err != nil && len(r.failed) == 0 {
		r.failed = append(r.failed, fmt.Sprintf("go test %s: %v", strings.Join(args, " "), err))
	}
	r.took = time.Since(began)
	return r
}

// pipeTo runs a command and passes its stdout to a reader.
func pipeTo(cmd *exec.Cmd, read func(io.Reader) error) error {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := read(out)
	_, _ = io.Copy(io.Discard, out) // a reader that failed must not block the writer
	return errors.Join(cmd.Wait(), readErr)
}

// maxKept bounds the kept output of one test. The beginning and the end of a long output are enough
// to find its cause.
const maxKept = 64 << 10

// slowTest is the duration in seconds from which a test is listed, so that the cost of each suite
// is visible.
const slowTest = 10

// collector turns events into results and shows failures.
type collector struct {
	results
	out     io.Writer
	output  map[test][]byte
	dropped map[test]int
	failing map[string]int // number of failed tests, by package
}

func newCollector(out io.Writer) *collector {
	return &collector{results: results{tally: tally{}}, out: out, output: map[test][]byte{}, dropped: map[test]int{},
		failing: map[string]int{}}
}

func (c *collector) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			c.line(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
	}
}

func (c *collector) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		_, _ = c.out.Write(line) // not an event: a test wrote to stdout directly
		return
	}
	c.event(e)
}

func (c *collector) event(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		c.tally.read(e.Output)
		c.keep(t, e.Output)
	case "build-output":
		fmt.Fprint(c.out, e.Output)
	case "pass":
		c.pass(t, e)
	case "skip":
		if t.name != "" {
			c.skipped = append(c.skipped, skip{t, skipReason(string(c.output[t]))})
		}
		c.forget(t)
	case "fail":
		c.fail(t, e)
	}
}

func (c *collector) pass(t test, e event) {
	if t.name == "" {
		fmt.Fprintf(c.out, "ok    %s  %.1fs\n", t.pkg, e.Elapsed)
		c.timed(e)
	} else {
		c.passed++
		if e.Elapsed >= slowTest && t.name == t.top() {
			fmt.Fprintf(c.out, "slow  %s  %.1fs\n", t, e.Elapsed)
		}
	}
	c.forget(t)
}

// fail shows a test's output. A package fails with its tests. It counts as a failure itself only if
// no test failed: it did not build, crashed, or reached its time limit.
func (c *collector) fail(t test, e event) {
	if t.name != "" {
		c.failing[t.pkg]++
		c.failed = append(c.failed, t.String())
		c.broken = append(c.broken, t)
		c.show(t)
		return
	}
	if c.failing[t.pkg] == 0 {
		c.failed = append(c.failed, t.pkg+" (package)")
	}
	c.show(t)
	for other := range c.output { // tests that were running when the binary ended
		if other.pkg == t.pkg {
			c.show(other)
		}
	}
	fmt.Fprintf(c.out, "FAIL  %s  %.1fs\n", t.pkg, e.Elapsed)
	c.timed(e)
}

func (c *collector) timed(e event) {
	c.suites = append(c.suites, suiteTime{e.Package, time.Duration(e.Elapsed * float64(time.Second))})
}

func (c *collector) keep(t test, text string) {
	if len(c.output[t]) > maxKept {
		c.dropped[t] += len(text)
		return
	}
	c.output[t] = append(c.output[t], text...)
}

// hangReports are the words of the daemon's log and of a sandbox's warning about a hanging guest.
var hangReports = [][]byte{[]byte("kernel of a sandbox's guest hangs"), []byte("guest kernel hangs")}

// show writes the output of a failed test.
func (c *collector) show(t test) {
	for _, report := range hangReports {
		c.hung = c.hung || bytes.Contains(c.output[t], report)
	}
	_, _ = c.out.Write(c.output[t])
	if n := c.dropped[t]; n > 0 {
		fmt.Fprintf(c.out, "[%d bytes more]\n", n)
	}
	c.forget(t)
}

func (c *collector) forget(t test) {
	delete(c.output, t)
	delete(c.dropped, t)
}

// skipReason extracts the reason from a skipped test's output. It has the form "    file.go:12:
// reason" between the lines with the test's name.
func skipReason(output string) string {
	var reason []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "===") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, rest, ok := strings.Cut(line, ".go:"); ok {
			if _, text, ok := strings.Cut(rest, ": "); ok {
				line = text
			}
		}
		reason = append(reason, line)
	}
	return strings.Join(reason, " ")
}
