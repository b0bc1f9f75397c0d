package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// suite is a part of a soak: tests with random actions, and tests with kills at every step. They
// also run in `make test`.
type suite struct {
	pkg, run string
	most     time.Duration // limit of each endless test; if 0, maxSpan
	skip     string
	env      []string
}

var soakSuites = []suite{
	{pkg: "./test/oracle", run: "."},
	{pkg: "./test/crash", run: "."},
	{pkg: "./internal/engine", run: "ConformsOverReal"},
	{pkg: "./internal/vm/vmm/live", run: "Captures"},
	{pkg: "./test/conformance", run: "^TestConformance$"}, // the other needs a Python and no VM
	{pkg: "./test/pressure", run: ".", most: 10 * time.Minute},
	{pkg: "./test/e2e", run: "AgentThatCrashes|GuestsThatDial|WhatWasAcknowledged|PausesInALoop|TrafficResumesMany|" +
		"ASnapshotGoesToAnotherDaemon|ServicesOutliveTheDaemon|BranchesUnderWriteLoad|AForkBeforeItsSnapshotIsHere"},
	{pkg: "./test/network", run: "ThePauseOfAGroup|PackagesAreInstalled|EveryWay"},
	// The whole suite with daemons of an ordinary user, who has no cgroups in the machine. There
	// the tests of limits expect errors.
	{pkg: "./test/e2e", run: ".", env: []string{"FORKD_TEST_USER=1000"}},
}

// span returns the duration of each endless test of the suite, in a soak of the given length.
func (s suite) span(soak time.Duration) time.Duration {
	return min(max(soak/spanPart, minSpan), cmp.Or(s.most, maxSpan))
}

// hostSuites drive a machine from outside. A soak on a host with KVM skips them. They use the
// newest E2B clients.
var hostSuites = []suite{
	{pkg: "./test/reboot", run: "."},
	{pkg: "./internal/images/pulled", run: "ALargeImage"}, // needs more disk than the machine has memory
	{pkg: "./cmd/forkd", run: "KillsDuringABuild|ABuildOfARecipe", env: []string{"FORKD_TEST_IMAGE=1"}},
	{pkg: "./test/e2b", run: ".", env: []string{"FORKD_E2B_VERSIONS=newest"}},
	{pkg: "./test/codeinterp", run: "ProtocolAndSDK", env: []string{"FORKD_E2B_VERSIONS=newest", "FORKD_TEST_IMAGE=1"}},
}

// Variables of the tests.
const (
	seedVariable = kvmtest.SeedVariable
	spanVariable = kvmtest.SoakVariable // of each endless test
)

// Limits of this duration, as a part of the soak: there are several such tests, one after the
// other.
const (
	spanPart = 4
	minSpan  = 20 * time.Second
	maxSpan  = 5 * time.Minute
)

// soak runs the suites in the machine, two in parallel, in rounds with new seeds, until the time is
// over. It completes the last round.
func soak(ctx context.Context, o options) error {
	began := time.Now()
	bench, err := o.bench(ctx)
	if err != nil {
		return err
	}
	// A single command starts and fills the machine.
	place := bench.lanes[0]
	first := goTest(ctx, place.env, append(slices.Clone(place.args), "-run", "^$", soakSuites[0].pkg)...)
	if len(first.failed) > 0 {
		return errFailed
	}
	total := results{tally: tally{}}
	rounds, last := 0, time.Duration(0)
	for ctx.Err() == nil && (rounds == 0 || o.soak-time.Since(began) > last/2) {
		rounds++
		start := time.Now()
		seed := rand.Uint64() >> 1
		phase("round %d, %s=%d, %s after the start", rounds, seedVariable, seed, start.Sub(began).Round(time.Second))
		env := append(slices.Clone(place.env), fmt.Sprintf("%s=%d", seedVariable, seed))
		done := soakRound(ctx, o.soak, env, place.args)
		if !bench.onHost {
			for _, s := range hostSuites {
				own := slices.Concat(env, s.env, []string{
					"FORKD_TEST_MACHINE=" + o.machine, spanVariable + "=" + s.span(o.soak).String(),
				})
				done = append(done, goTest(ctx, own,
					"-count=1", "-timeout", (o.limit+time.Minute).String(), "-run", s.run, s.pkg))
			}
		}
		for _, r := range done {
			total.passed += r.passed
			total.failed = append(total.failed, r.failed...)
			for _, s := range r.skipped {
				total.failed = append(total.failed, s.test.String()+" skipped although all it needs is there: "+s.reason)
			}
			total.tally.add(r.tally)
		}
		last = time.Since(start)
	}
	total.took = time.Since(began) // also after an interruption: the table then shows the results so far
	return errors.Join(total.printSoak(os.Stdout, rounds), context.Cause(ctx))
}

// atOnce is the number of suites in parallel. Suites disturb each other, but guests must still
// answer within their time limits.
const atOnce = 2

// soakRound runs each suite once.
func soakRound(ctx context.Context, length time.Duration, env, args []string) []results {
	out := make([]results, len(soakSuites))
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i, s := range soakSuites {
		all.Go(func() error {
			env := slices.Concat(env, []string{spanVariable + "=" + s.span(length).String()}, s.env)
			out[i] = goTest(ctx, env, append(slices.Clone(args), "-run", s.run, "-skip", s.skip, s.pkg)...)
			return nil
		})
	}
	_ = all.Wait()
	return out
}

// printSoak writes the table of the results, and the last line.
func (r results) printSoak(out io.Writer, rounds int) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nsoak\t%s\t\nrounds\t%d\t\n", r.took.Round(time.Second), rounds)
	for _, name := range r.tally.names() {
		fmt.Fprintf(w, "%s\t%d\t\n", strings.ReplaceAll(name, "_", " "), r.tally[name])
	}
	fmt.Fprintf(w, "failures\t%d\t\n", len(r.failed))
	if err := w.Flush(); err != nil {
		return err
	}
	failed := slices.Clone(r.failed)
	if r.tally["captures_compared"] == 0 {
		failed = append(failed, "no capture was compared with its source")
	}
	for _, f := range failed {
		fmt.Fprintf(out, "FAIL  %s\n", f)
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", r.passed, len(failed))
	if len(failed) > 0 {
		return errFailed
	}
	return nil
}

// tally adds up the counts in the suites' output: lines "soak: NAME=NUMBER ...".
type tally map[string]int

var tallied = regexp.MustCompile(`([a-z_]+)=(\d+)`)

func (t tally) read(line string) {
	_, said, ok := strings.Cut(line, "soak: ")
	if !ok {
		return
	}
	for _, m := range tallied.FindAllStringSubmatch(said, -1) {
		n, _ := strconv.Atoi(m[2])
		t[m[1]] += n
	}
}

func (t tally) add(other tally) {
	for name, n := range other {
		t[name] += n
	}
}

func (t tally) names() []string {
	var out []string
	for name := range t {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
