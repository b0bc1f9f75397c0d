package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// test names one test function or subtest.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

// top returns the test function of a subtest.
func (t test) top() string {
	name, _, _ := strings.Cut(t.name, "/")
	return name
}

// skip is a skipped test with its reason. The reason holds what the test logged before it skipped, so a mark can
// stand anywhere in it.
type skip struct {
	test
	reason string
}

// forMachine reports whether the test drives a machine from outside. All other skipped tests can
// run where KVM is real, because there they also have root rights and a cgroup tree.
func (s skip) forMachine() bool { return strings.Contains(s.reason, kvmtest.MachineMark) }

// forSoak reports whether only a soak runs the test.
func (s skip) forSoak() bool { return strings.Contains(s.reason, kvmtest.SoakMark) }

// results holds the results of one phase.
type results struct {
	passed  int
	failed  []string // one line each; details were already printed
	broken  []test   // those of failed that are tests
	skipped []skip
	hung    bool // the output of a failure reports a guest that hangs
	// repeated lists the failures of a first attempt, after which the tests ran again.
	repeated []string
	took     time.Duration
	suites   []suiteTime
	tally    tally
}

// suiteTime is the time of one run of a package's tests.
type suiteTime struct {
	pkg  string
	took time.Duration
}

// waiting returns the test functions to run again, by package: either the ones that drive a
// machine, or the others.
func (r results) waiting(forMachine bool) map[string][]string {
	again := map[string][]string{}
	for _, s := range r.skipped {
		if s.forSoak() {
			continue
		}
		if s.forMachine() == forMachine && !slices.Contains(again[s.pkg], s.top()) {
			again[s.pkg] = append(again[s.pkg], s.top())
		}
	}
	return again
}

// withoutSkips returns the results of a phase in which all that tests need is there: a skip is a
// failure, unless it is left to a soak.
func (r results) withoutSkips() results {
	var left []skip
	for _, s := range r.skipped {
		if s.forSoak() {
			left = append(left, s)
			continue
		}
		r.failed = append(r.failed, s.test.String()+" skipped although all it needs is there: "+s.reason)
	}
	r.skipped = left
	return r
}

// summary is printed at the end.
type summary struct {
	rows []row
}

type row struct {
	phase string
	results
}

func (s *summary) add(phase string, r results) { s.rows = append(s.rows, row{phase, r}) }

// print writes the table, the failures and the last line. Skips of the plain phase do not count: a
// later phase has run these tests, or reported them as failed.
func (s *summary) print(out io.Writer, took time.Duration) error {
	var passed, failed int
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "\nphase\tpassed\tfailed\tleft to later\ttook\n")
	for _, r := range s.rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", r.phase, r.passed, len(r.failed), len(r.skipped), r.took.Round(time.Second))
		passed, failed = passed+r.passed, failed+len(r.failed)
	}
	fmt.Fprintf(w, "total\t\t\t\t%s\n", took.Round(time.Second))
	if err := w.Flush(); err != nil {
		return err
	}
	if err := s.printLongest(out); err != nil {
		return err
	}
	for _, r := range s.rows {
		for _, f := range r.repeated {
			fmt.Fprintf(out, "TWICE %s: %s failed once, and was repeated\n", r.phase, f)
		}
		for _, f := range r.failed {
			fmt.Fprintf(out, "FAIL  %s: %s\n", r.phase, f)
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		return errFailed
	}
	return nil
}

// longSuite is the duration from which the summary lists a package.
const longSuite = 30 * time.Second

// printLongest writes the packages that took longest, so that a run shows where its time went.
func (s *summary) printLongest(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	head := "\nphase\tlong suite\ttook\n"
	for _, r := range s.rows {
		slices.SortStableFunc(r.suites, func(a, b suiteTime) int { return cmp.Compare(b.took, a.took) })
		for _, one := range r.suites {
			if one.took >= longSuite {
				fmt.Fprintf(w, "%s%s\t%s\t%s\n", head, r.phase, one.pkg, one.took.Round(time.Second))
				head = ""
			}
		}
	}
	return w.Flush()
}
