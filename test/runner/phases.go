package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func phase(format string, args ...any) { phaseOn(os.Stdout, format, args...) }

func phaseOn(out io.Writer, format string, args ...any) {
	fmt.Fprintf(out, "\n== "+format+"\n", args...)
}

// vet runs go vet. It counts as one test.
func vet(ctx context.Context, o options) results {
	phase("go vet")
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"vet"}, o.packages...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	r := results{passed: 1}
	if err := cmd.Run(); err != nil {
		r = results{failed: []string{"go vet: " + err.Error()}}
	}
	r.took = time.Since(began)
	return r
}

// plainPhase runs the tests as a contributor does: without KVM and fixtures.
func plainPhase(ctx context.Context, o options) results {
	phase("go test")
	// Images are really built here: make test has installed the tools.
	env := []string{"FORKD_TEST_KVM=", "FORKD_TEST_FIXTURES=", "FORKD_TEST_MACHINE=", "FORKD_TEST_IMAGE=1"}
	args := []string{"-timeout", "10m"}
	first := goTest(ctx, env, append(slices.Clone(args), o.packages...)...)
	return repeat(ctx, first, func(again map[string][]string) results {
		return inPackages(ctx, []lane{{env, append(args, "-count=1")}}, again)
	})
}

// kvmPhase runs the skipped tests where KVM is real, in the lanes of the bench. Failed tests are repeated alone.
func kvmPhase(ctx context.Context, o options, again map[string][]string) (results, string) {
	if len(again) == 0 {
		return results{}, "none"
	}
	began := time.Now()
	where := "machine"
	bench, err := o.bench(ctx)
	if err != nil {
		return results{failed: []string{err.Error()}}, where
	}
	if bench.onHost {
		where = "host"
	}
	phase("tests that need KVM (%s)", where)
	total := rerun(ctx, bench.lanes, again)
	bench.close(ctx, o)
	total = repeat(ctx, total, func(again map[string][]string) results {
		return rerun(ctx, bench.lanes[:1], again)
	})
	total.took = time.Since(began)
	return total, where
}

// machinePhase runs, on this host, the tests that drive a machine.
func machinePhase(ctx context.Context, o options, again map[string][]string) results {
	if len(again) == 0 {
		return results{}
	}
	phase("tests that drive a machine")
	began := time.Now()
	if err := start(ctx, o.forkd, o.machine); err != nil {
		return results{failed: []string{err.Error()}}
	}
	env := append([]string{"FORKD_TEST_MACHINE=" + o.machine, "CGO_ENABLED=0"}, o.drawn...)
	args := []string{"-count=1", "-timeout", o.limit.String()}
	host := []lane{{env, args}}
	total := repeat(ctx, rerun(ctx, host, again), func(again map[string][]string) results {
		return rerun(ctx, host, again)
	})
	total.took = time.Since(began)
	return total
}

// start starts a machine with empty memory.
func start(ctx context.Context, forkd, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, forkd, append([]string{"machine", "start", "--name", name, "--restart"}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start machine %s: %w", name, err)
	}
	return nil
}

// rerun runs the tests that an earlier phase skipped. A skip is a failure now, except of parts that
// only a soak runs.
func rerun(ctx context.Context, lanes []lane, again map[string][]string) results {
	return inPackages(ctx, lanes, again).withoutSkips()
}

// lane is the environment and the arguments of go test for one package at a time.
type lane struct{ env, args []string }

// inPackages runs the named tests of each package, one package in each lane. Packages with the most tests start
// first, because a long one at the end would delay the phase.
func inPackages(ctx context.Context, lanes []lane, again map[string][]string) results {
	var total results
	var mu sync.Mutex // guards total
	var running errgroup.Group
	free := make(chan lane, len(lanes))
	for _, l := range lanes {
		free <- l
	}
	for _, pkg := range longestFirst(again) {
		l := <-free
		running.Go(func() error {
			defer func() { free <- l }()
			names := "^(" + strings.Join(again[pkg], "|") + ")$"
			r := goTest(ctx, l.env, append(slices.Clone(l.args), "-run", names, pkg)...)
			mu.Lock()
			defer mu.Unlock()
			total.passed += r.passed
			total.failed = append(total.failed, r.failed...)
			total.broken = append(total.broken, r.broken...)
			total.skipped = append(total.skipped, r.skipped...)
			total.suites = append(total.suites, r.suites...)
			total.hung = total.hung || r.hung
			total.took += r.took
			return nil
		})
	}
	_ = running.Wait()
	return total
}

// Limits of the failed test functions that are repeated: more than a few have a common cause.
const (
	maxHung  = 8 // after the report of a hanging guest; one such guest does not fail more
	maxFlaky = 4 // otherwise
)

// repeat runs a few failed tests of a phase once more: tests of races and times on a busy host, and those that met
// a guest that hangs because its emulated CPU delivered a timer interrupt while interrupts were disabled
// (docs/inside/testing.md). A test that passes now does not fail the run, but its output is printed and the
// summary names it: such a test, or the code it tests, has a fault.
func repeat(ctx context.Context, first results, run func(map[string][]string) results) results {
	again := map[string][]string{}
	n := 0
	for _, f := range first.broken {
		if !slices.Contains(again[f.pkg], f.top()) {
			again[f.pkg] = append(again[f.pkg], f.top())
			n++
		}
	}
	limit := maxFlaky
	if first.hung {
		limit = maxHung
	}
	// Other failures, such as a package that did not build or ended early, have no test to repeat.
	if n == 0 || n > limit || len(first.failed) > len(first.broken) || ctx.Err() != nil {
		return first
	}
	phase("failed tests, once more")
	second := run(again)
	second.passed += first.passed
	second.skipped = append(first.skipped, second.skipped...)
	second.repeated = first.failed
	second.suites = append(first.suites, second.suites...)
	second.took += first.took
	return second
}

// longestFirst sorts packages: first the black-box suites, with few tests of some minutes each, and
// then by the number of tests.
func longestFirst(again map[string][]string) []string {
	suite := func(pkg string) int {
		if strings.Contains(pkg, "/test/") {
			return 1000
		}
		return 0
	}
	return slices.SortedFunc(maps.Keys(again), func(a, b string) int {
		return cmp.Or(suite(b)+len(again[b])-suite(a)-len(again[a]), strings.Compare(a, b))
	})
}

// bench is where KVM is real: the host with one lane, or a machine for each lane.
type bench struct {
	onHost   bool
	lanes    []lane
	machines []string // of the lanes after the first
}

// close stops all machines except the first, which the next phase and the next run use.
func (b bench) close(ctx context.Context, o options) {
	for _, name := range b.machines {
		out, err := exec.CommandContext(ctx, o.forkd, "machine", "stop", "--name", name).CombinedOutput()
		if err != nil {
			fmt.Fprintf(os.Stderr, "runner: stop machine %s: %v: %s\n", name, err, out)
		}
	}
}

// machineMiB is the memory of a machine for KVM tests.
const machineMiB = 5000

func (o options) bench(ctx context.Context) (bench, error) {
	forkd, err := filepath.Abs(o.forkd)
	if err != nil {
		return bench{}, err
	}
	fixtures, err := filepath.Abs(o.fixtures)
	if err != nil {
		return bench{}, err
	}
	where, err := decide(ctx, forkd)
	if err != nil {
		return bench{}, fmt.Errorf("ask forkd doctor where KVM is: %w", err)
	}
	// Static binaries: the machine has no C library.
	env := append([]string{"FORKD_TEST_KVM=1", "FORKD_TEST_FIXTURES=" + fixtures, "CGO_ENABLED=0"}, o.drawn...)
	args := []string{"-count=1", "-timeout", (o.limit + time.Minute).String()}
	if where == "host" {
		return bench{onHost: true, lanes: []lane{{env, args}}}, nil
	}
	env = append(env, "FORKD_TEST_JAIL=strict") // package harness: the machine supports all of it
	var b bench
	for i := range max(1, o.lanes) {
		name := o.machine
		if i > 0 {
			name += "-" + strconv.Itoa(i+1)
			b.machines = append(b.machines, name)
		}
		if err := start(ctx, forkd, name, "--memory", strconv.Itoa(machineMiB)); err != nil {
			return bench{}, err
		}
		run := fmt.Sprintf("%s machine test-exec --name %s --timeout %s", forkd, name, o.limit)
		b.lanes = append(b.lanes, lane{env, append(slices.Clone(args), "-exec", run)})
	}
	return b, nil
}

func decide(ctx context.Context, forkd string) (string, error) {
	cmd := exec.CommandContext(ctx, forkd, "doctor", "--json")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	var d struct {
		Decision struct{ Where, Reason string }
	}
	if err := json.Unmarshal(out, &d); err != nil {
		return "", err
	}
	fmt.Printf("\nVMs are run on the %s: %s\n", d.Decision.Where, d.Decision.Reason)
	return d.Decision.Where, nil
}

// fuzzPhase runs every fuzz target with a few thousand inputs. This is enough to find a parser that
// fails on its seeds or on similar inputs. The limit is a number of inputs, because a -fuzztime
// with a duration can end in "context deadline exceeded" without a finding
// (golang.org/issue/75804). The package's time limit stops an input that hangs.
func fuzzPhase(ctx context.Context, o options, to io.Writer) results {
	if o.fuzzInputs == 0 {
		return results{}
	}
	phaseOn(to, "fuzz targets, %d inputs each", o.fuzzInputs)
	began := time.Now()
	var total results
	targets, err := fuzzTargets(ctx, o)
	if err != nil {
		total.failed = append(total.failed, "list fuzz targets: "+err.Error())
	}
	for _, t := range targets {
		one := time.Now()
		out, err := fuzz(ctx, o, t)
		fmt.Fprintf(to, "fuzz  %-6s %s\n", time.Since(one).Round(time.Second), t)
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(to, "%s\n", out)
			total.failed = append(total.failed, t.String())
		} else {
			total.passed++
		}
	}
	total.took = time.Since(began)
	return total
}

// fuzz runs one target and returns its output.
func fuzz(ctx context.Context, o options, t test) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	inputs := strconv.Itoa(o.fuzzInputs) + "x"
	cmd := lowly(ctx, "go", "test", "-vet=off", "-run", "^$", "-fuzz", "^"+t.name+"$",
		"-fuzztime", inputs, "-fuzzminimizetime", "10x", t.pkg)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := runLowly(cmd)
	return out.Bytes(), err
}

// fuzzFunc matches a fuzz target in gofmt's style.
var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// fuzzTargets finds the fuzz targets in the sources of the tests. `go test -list` would link and start all test
// binaries of the module.
func fuzzTargets(ctx context.Context, o options) ([]test, error) {
	list := append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, o.packages...)
	cmd := exec.CommandContext(ctx, "go", list...)
	cmd.Stderr = os.Stderr
	var targets []test
	err := pipeTo(cmd, func(r io.Reader) error {
		for dec := json.NewDecoder(r); ; {
			var p struct {
				ImportPath, Dir           string
				TestGoFiles, XTestGoFiles []string
			}
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
				source, err := os.ReadFile(filepath.Join(p.Dir, name))
				if err != nil {
					return err
				}
				for _, found := range fuzzFunc.FindAllSubmatch(source, -1) {
					targets = append(targets, test{p.ImportPath, string(found[1])})
				}
			}
		}
	})
	return targets, err
}
