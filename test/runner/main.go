// Command runner is `make test`: it runs every test of the module and checks the skips. It first
// runs vet, then plain `go test ./...`. Then it runs every skipped test again where KVM is real
// (the host, or the machine), and the tests that drive a machine from outside. A skip there is a
// failure. In parallel and at the lowest priority, it builds for other platforms and runs each fuzz
// target briefly. It owns the order and the summary; go test owns the tests. Only the Makefile
// calls it. The trap: programs read the last line, so it is "N passed, N failed". With -soak it is
// `make soak`: it runs the randomised suites for any duration.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

func main() {
	var o options
	flag.StringVar(&o.forkd, "forkd", "bin/forkd", "the forkd program that runs the machine")
	flag.StringVar(&o.machine, "machine", "test", "name of the machine to test in")
	flag.StringVar(&o.fixtures, "fixtures", ".cache/fixtures", "directory of the fixtures")
	flag.IntVar(&o.fuzzInputs, "fuzz", 8000, "inputs that each fuzz target is given; 0 for no fuzzing")
	flag.IntVar(&o.lanes, "lanes", 1, "packages whose KVM tests run at once, each in its own machine")
	flag.DurationVar(&o.limit, "limit", 40*time.Minute, "limit for the tests of one package")
	flag.DurationVar(&o.soak, "soak", 0,
		"instead of all tests, run those that draw their steps and those that kill for this long")
	onlyCross := flag.Bool("cross", false, "instead of all tests, compile for the other platforms")
	flag.Parse()
	o.packages = flag.Args()
	if len(o.packages) == 0 {
		o.packages = []string{"./..."}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	do := run
	switch {
	case *onlyCross:
		do = cross
	case o.soak > 0:
		do = soak
	}
	err := do(ctx, o)
	stop()
	if err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(os.Stderr, "runner:", err)
		}
		os.Exit(1)
	}
}

type options struct {
	forkd, machine, fixtures string
	fuzzInputs, lanes        int
	limit, soak              time.Duration
	packages                 []string
	drawn                    []string // environment of the KVM tests: the seed, and that it draws tests
}

// errFailed reports failed tests, whose details were already printed.
var errFailed = errors.New("tests failed")

// run runs the phases in order. A failing phase does not stop the next ones, so the summary shows
// all failures.
func run(ctx context.Context, o options) error {
	began := time.Now()
	seed := cmp.Or(os.Getenv(kvmtest.SeedVariable), strconv.FormatUint(rand.Uint64()>>1, 10))
	o.drawn = []string{kvmtest.SeedVariable + "=" + seed, kvmtest.DrawVariable + "=1"}
	phase("%s=%s", kvmtest.SeedVariable, seed)
	var sum summary
	sum.add("vet", vet(ctx, o))
	plain := plainPhase(ctx, o)
	sum.add("plain", plain)
	rest := startBeside(ctx, o)
	kvm, where := kvmPhase(ctx, o, plain.waiting(false))
	sum.add("kvm, "+where, kvm)
	sum.add("machine", machinePhase(ctx, o, plain.waiting(true)))
	rest.wait(os.Stdout)
	sum.add("cross", rest.cross)
	sum.add("fuzz", rest.fuzz)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return sum.print(os.Stdout, time.Since(began))
}
