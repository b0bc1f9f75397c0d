package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// feed passes the events of a simulated run to a collector.
func feed(t *testing.T, lines ...string) (*collector, string) {
	t.Helper()
	var out bytes.Buffer
	c := newCollector(&out)
	if err := c.read(strings.NewReader(strings.Join(lines, "\n"))); err != nil {
		t.Fatal(err)
	}
	return c, out.String()
}

func TestCollectorCountsAndShowsFailures(t *testing.T) {
	c, out := feed(t,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"why it failed\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestB"}`,
		`{"Action":"fail","Package":"p","Elapsed":1}`)
	if c.passed != 1 || len(c.failed) != 1 || c.failed[0] != "p TestB" {
		t.Errorf("passed %d, failed %q", c.passed, c.failed)
	}
	if !strings.Contains(out, "why it failed") || strings.Contains(out, "quiet") {
		t.Errorf("shows %q", out)
	}
}

func TestSlowTestsAreNamed(t *testing.T) {
	_, out := feed(t,
		`{"Action":"pass","Package":"p","Test":"TestQuick","Elapsed":9.9}`,
		`{"Action":"pass","Package":"p","Test":"TestSlow/part","Elapsed":11}`,
		`{"Action":"pass","Package":"p","Test":"TestSlow","Elapsed":12.3}`)
	if out != "slow  p TestSlow  12.3s\n" {
		t.Errorf("shows %q", out)
	}
}

func TestAPackageThatCrashesFailsByItself(t *testing.T) {
	c, out := feed(t,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: here\n"}`,
		`{"Action":"fail","Package":"p"}`,
		`{"ImportPath":"q","Action":"build-output","Output":"q.go:1: syntax error\n"}`,
		`{"Action":"fail","Package":"q"}`)
	if len(c.failed) != 2 || !strings.Contains(out, "panic: here") || !strings.Contains(out, "syntax error") {
		t.Errorf("failed %q, shows %q", c.failed, out)
	}
}

func TestSkipsAreSortedByWhoRunsThemLater(t *testing.T) {
	c, _ := feed(t,
		`{"Action":"output","Package":"p","Test":"TestK","Output":"=== RUN   TestK\n"}`,
		`{"Action":"output","Package":"p","Test":"TestK","Output":"    a_test.go:3: kvmtest: needs a usable KVM\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestK"}`,
		`{"Action":"output","Package":"p","Test":"TestS/sub","Output":"    a_test.go:3: kvmtest: needs a usable KVM\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestS/sub"}`,
		`{"Action":"output","Package":"p","Test":"TestX","Output":"    a_test.go:9: cpio is not installed\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestX"}`,
		`{"Action":"output","Package":"p","Test":"TestM","Output":"    a_test.go:9: machinetest: needs QEMU\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestM"}`,
		`{"Action":"output","Package":"p","Test":"TestL","Output":"    a_test.go:9: soaktest: takes minutes\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestL"}`)
	got := c.waiting(false)["p"]
	if want := []string{"TestK", "TestS", "TestX"}; !slices.Equal(got, want) {
		t.Errorf("run where KVM is: %q", got)
	}
	if got := c.waiting(true)["p"]; !slices.Equal(got, []string{"TestM"}) {
		t.Errorf("run beside a machine: %q", got)
	}
}

// Where KVM is, parts of a test may be left to a soak. No other skip may hide there.
func TestOnlySoaksSkipWhereAllIsThere(t *testing.T) {
	c, _ := feed(t,
		`{"Action":"output","Package":"p","Test":"TestK/long","Output":"    a_test.go:3: soaktest: takes minutes\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestK/long"}`,
		`{"Action":"output","Package":"p","Test":"TestL","Output":"    a_test.go:3: FORKD_TEST_SEED=7\n"}`,
		`{"Action":"output","Package":"p","Test":"TestL","Output":"    a_test.go:4: soaktest: not drawn\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestL"}`,
		`{"Action":"output","Package":"p","Test":"TestX","Output":"    a_test.go:9: cpio is not installed\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestX"}`)
	got := c.results.withoutSkips()
	if len(got.failed) != 1 || !strings.HasPrefix(got.failed[0], "p TestX skipped") {
		t.Errorf("failures are %q", got.failed)
	}
	if len(got.skipped) != 2 || got.skipped[0].name != "TestK/long" || got.skipped[1].name != "TestL" {
		t.Errorf("left to the soak: %v", got.skipped)
	}
}

func TestTheLastLineIsForPrograms(t *testing.T) {
	var s summary
	s.add("plain", results{passed: 3, failed: []string{"p TestA"}})
	var out bytes.Buffer
	if err := s.print(&out, time.Second); !errors.Is(err, errFailed) {
		t.Errorf("error is %v", err)
	}
	if !strings.HasSuffix(out.String(), "FAIL  plain: p TestA\n3 passed, 1 failed\n") {
		t.Errorf("summary is %q", out.String())
	}
}

// A failed test that passes when repeated is named, and does not fail the run.
func TestRepeatedTestsAreNamed(t *testing.T) {
	first, _ := feed(t, `{"Action":"fail","Package":"p","Test":"TestA/sub"}`, `{"Action":"fail","Package":"p","Test":"TestA"}`)
	if want := []test{{"p", "TestA/sub"}, {"p", "TestA"}}; !slices.Equal(first.broken, want) {
		t.Errorf("broken are %v", first.broken)
	}
	var s summary
	s.add("kvm", results{passed: 2, repeated: first.failed})
	var out bytes.Buffer
	if err := s.print(&out, time.Second); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(out.String(), "TWICE kvm: p TestA failed once, and was repeated\n2 passed, 0 failed\n") {
		t.Errorf("summary is %q", out.String())
	}
}

// Only the output of a failure counts as a report of a hang.
func TestAHangIsReportedByAFailure(t *testing.T) {
	const line = `{"Action":"output","Package":"p","Test":"TestA","Output":"guest kernel hangs: vCPU 0 spins\n"}`
	failed, _ := feed(t, line, `{"Action":"fail","Package":"p","Test":"TestA"}`)
	passed, _ := feed(t, line, `{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"fail","Package":"p","Test":"TestB"}`)
	if !failed.hung || passed.hung {
		t.Errorf("a failure: %t, another test: %t", failed.hung, passed.hung)
	}
}

// Many failures have a common cause, and a package that did not build has no test to repeat.
func TestNotEverythingIsRepeated(t *testing.T) {
	many := func(n int) (r results) {
		for i := range n {
			r.broken = append(r.broken, test{"p", fmt.Sprint("Test", i)})
			r.failed = append(r.failed, r.broken[i].String())
		}
		return r
	}
	hung := many(maxHung + 1)
	hung.hung = true
	for _, r := range []results{
		{}, hung, many(maxFlaky + 1),
		{hung: true, failed: []string{"p TestA", "q (package)"}, broken: []test{{"p", "TestA"}}},
	} {
		got := repeat(t.Context(), r, func(map[string][]string) results { return results{passed: 1} })
		if len(got.failed) != len(r.failed) || got.repeated != nil {
			t.Errorf("%+v became %+v", r, got)
		}
	}
}

// A failure that comes again is a failure. The rest of the phase is kept.
func TestATestThatFailsTwiceFails(t *testing.T) {
	first := results{passed: 7, failed: []string{"p TestA/sub", "p TestA"}, broken: []test{{"p", "TestA/sub"}, {"p", "TestA"}},
		skipped: []skip{{test: test{"p", "TestB"}}}}
	for _, fails := range []bool{true, false} {
		got := repeat(t.Context(), first, func(again map[string][]string) results {
			if len(again) != 1 || !slices.Equal(again["p"], []string{"TestA"}) {
				t.Errorf("again: %v", again)
			}
			if fails {
				return results{failed: []string{"p TestA"}}
			}
			return results{passed: 2}
		})
		want := results{passed: 9, failed: []string{}, repeated: first.failed, skipped: first.skipped}
		if fails {
			want.passed, want.failed = 7, []string{"p TestA"}
		}
		if got.passed != want.passed || !slices.Equal(got.failed, want.failed) || len(got.skipped) != 1 ||
			!slices.Equal(got.repeated, want.repeated) {
			t.Errorf("fails again %t: %+v", fails, got)
		}
	}
}

func TestASoakAddsUpWhatSuitesSay(t *testing.T) {
	c, _ := feed(t,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: soak: captures_compared=3 kills=1\n"}`,
		`{"Action":"output","Package":"q","Output":"soak: captures_compared=40\n"}`,
		`{"Action":"output","Package":"q","Output":"kills=9, but no soak said so\n"}`)
	sum := tally{"kills": 2}
	sum.add(c.tally)
	var out bytes.Buffer
	if err := (results{passed: 2, tally: sum}).printSoak(&out, 1); err != nil {
		t.Error(err)
	}
	for _, line := range []string{"captures compared  43", "kills   3", "failures   0", "2 passed, 0 failed\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in %s", line, out.String())
		}
	}
}

// A soak fails if a test fails, and if no capture was compared.
func TestASoakThatFails(t *testing.T) {
	for says, r := range map[string]results{
		"FAIL  p TestA":                 {failed: []string{"p TestA"}, tally: tally{"captures_compared": 1}},
		"FAIL  no capture was compared": {passed: 1, tally: tally{}},
	} {
		var out bytes.Buffer
		if err := r.printSoak(&out, 1); !errors.Is(err, errFailed) || !strings.Contains(out.String(), says) {
			t.Errorf("%v: %s, want %q", err, out.String(), says)
		}
	}
}

func TestAFloodIsCut(t *testing.T) {
	c, out := feed(t)
	for range 100 {
		c.keep(test{"p", "T"}, strings.Repeat("x", 4<<10))
	}
	c.show(test{"p", "T"})
	if n := c.out.(*bytes.Buffer).Len(); n > maxKept+8<<10 {
		t.Errorf("%d bytes shown%s", n, out)
	}
}

func TestASoakOfAnHourHasTenMinutesOfPressure(t *testing.T) {
	for _, s := range soakSuites {
		want := maxSpan
		if s.pkg == "./test/pressure" {
			want = 10 * time.Minute
		}
		if got := s.span(time.Hour); got != want {
			t.Errorf("%s: %s, want %s", s.pkg, got, want)
		}
		if got := s.span(time.Second); got != minSpan {
			t.Errorf("%s in a soak of a second: %s", s.pkg, got)
		}
	}
}

// Targets are read from the sources, so a target in another style would never be fuzzed.
func TestFuzzTargetsAreFound(t *testing.T) {
	got, err := fuzzTargets(t.Context(), options{packages: []string{"../../internal/net/netpolicy", "."}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command("go", "test", "-vet=off", "-list", "^Fuzz", "../../internal/net/netpolicy").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(list)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Fuzz") {
			want = append(want, name)
		}
	}
	var names []string
	for _, target := range got {
		names = append(names, target.name)
		if !strings.HasSuffix(target.pkg, "/internal/net/netpolicy") {
			t.Errorf("target %s", target)
		}
	}
	slices.Sort(names)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(names, want) {
		t.Errorf("found %q, want %q", names, want)
	}
}

func TestTheSummaryListsLongSuites(t *testing.T) {
	c, _ := feed(t, `{"Action":"pass","Package":"p/short","Elapsed":3}`, `{"Action":"pass","Package":"p/long","Elapsed":61}`,
		`{"Action":"fail","Package":"p/longest","Test":"TestX","Elapsed":1}`, `{"Action":"fail","Package":"p/longest","Elapsed":99}`)
	var sum summary
	sum.add("kvm", c.results)
	var out bytes.Buffer
	_ = sum.print(&out, time.Minute)
	if got := out.String(); !strings.Contains(got, "kvm    p/longest   1m39s\nkvm    p/long      1m1s\n") || strings.Contains(got, "p/short") {
		t.Errorf("the summary is:\n%s", got)
	}
}
