package harness

import (
	"strings"
	"testing"
	"time"
)

const (
	branchedLine  = "time=1 level=INFO msg=branched sandbox=sb-1 tag=a\n"
	checkedLine   = "time=1 level=INFO msg=\"oracle checked\" n=1 tag=a pages=65536 took=1s\n"
	mismatchLine  = "time=1 level=ERROR msg=\"oracle mismatch\" tag=a err=\"memory: 1 of 2 pages differ: 1\"\n"
	createdLine   = "time=1 level=INFO msg=\"snapshot created\" tag=p image=box\n"
	pausedLine    = "time=1 level=INFO msg=paused sandbox=sb-1 tag=a cold=false bytes=1 took=1s\n"
	coldPauseLine = "time=1 level=INFO msg=paused sandbox=sb-1 tag=a cold=true bytes=1 took=1s\n"
	compactedLine = "time=1 level=INFO msg=\"snapshot compacted\" tag=p to=q\n"
)

// Finish fails if a snapshot differs, and if the oracle did not run.
func TestTheOraclesAccount(t *testing.T) {
	t.Setenv("FORKD_TEST_ORACLE", "")
	for _, c := range []struct {
		name, log string
		wanted    int
		says      string
	}{
		{"nothing", "", 0, ""},
		{"all are compared", createdLine + checkedLine + branchedLine + checkedLine, 0, ""},
		{"compared and cut off", checkedLine, 0, ""},
		{"a creation is not compared", createdLine, 0, "1 snapshots were made, and the oracle has compared 0"},
		{"a branch is not", checkedLine + createdLine + branchedLine, 0, "2 snapshots were made"},
		{"a compaction is not", compactedLine, 0, "1 snapshots were made"},
		{"a pause is not", pausedLine, 0, "1 snapshots were made"},
		{"a pause without memory", coldPauseLine, 0, ""},
		{"one differs", checkedLine + mismatchLine, 0, "1 of 2 pages differ"},
		{"one differs as it should", checkedLine + mismatchLine, 1, ""},
		{"one should differ", checkedLine, 1, "found 0"},
	} {
		err := accountOf(c.log).check(c.wanted)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	forks := "time=1 level=INFO msg=forked tag=p n=3 shells=0\ntime=1 level=INFO msg=forked tag=q n=2\n"
	if a := accountOf(forks + "time=1 level=INFO msg=\"rolled back\" sandbox=a\n"); a.Forked != 5 || a.RolledBack != 1 {
		t.Errorf("%+v", a)
	}
	if a := accountOf(checkedLine + checkedLine); a.Pages != 2*65536 || a.Took != 2*time.Second {
		t.Errorf("%d pages in %s", a.Pages, a.Took)
	}
	t.Setenv("FORKD_TEST_ORACLE", "0")
	if err := (&Daemon{}).checkOracle(accountOf(branchedLine)); err != nil {
		t.Errorf("switched off: %v", err)
	}
	t.Setenv("FORKD_TEST_ORACLE", "")
	for _, no := range []bool{false, true} {
		if err := (&Daemon{NoOracle: no}).checkOracle(accountOf(branchedLine)); (err == nil) != no {
			t.Errorf("a suite without it %v: %v", no, err)
		}
	}
	t.Setenv("FORKD_TEST_SOAK", "1m")
	if err := (&Daemon{NoOracle: true}).checkOracle(accountOf(branchedLine)); err == nil {
		t.Error("in a soak, a suite without it is without")
	}
	if err := (&Daemon{Measured: true}).checkOracle(accountOf(branchedLine)); err != nil {
		t.Errorf("in a soak, one that measures: %v", err)
	}
}
