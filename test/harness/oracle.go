package harness

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Daemons here have the oracle on (sandbox.Config.Oracle) unless their suite says no: a
// snapshot is compared with its source before anybody can fork from it. A run of the tests
// with FORKD_TEST_ORACLE=0 is without, one with FORKD_TEST_ORACLE=1 and a soak have it everywhere but where a
// daemon is measured.

func (d *Daemon) oracleEnv() string {
	if d.oracleOff() {
		return sandbox.OracleVariable + "=0"
	}
	return sandbox.OracleVariable + "=1"
}

func (d *Daemon) oracleOff() bool {
	switch os.Getenv(sandbox.OracleVariable) {
	case "0":
		return true
	case "1":
		return d.Measured
	}
	return d.Measured || d.NoOracle && !Soaking()
}

// Account is what a daemon has done in all of its runs, by its log.
type Account struct {
	Made       int           // snapshots, by operations that ended well
	Checked    int           // snapshots that the oracle has compared
	Pages      int           // of memory and disks in these
	Took       time.Duration // to read them back and compare
	Mismatches []string

	Forked, RolledBack int // children, sandboxes
	Kills, Starts      int // by the tests: of sandboxes and of the daemon
}

// String is the line that a soak adds up (test/runner).
func (a Account) String() string {
	return fmt.Sprintf("soak: captures_made=%d captures_compared=%d pages_compared=%d ms_of_comparing=%d mismatches=%d "+
		"children_forked=%d rollbacks=%d kills=%d daemon_restarts=%d",
		a.Made, a.Checked, a.Pages, a.Took.Milliseconds(), len(a.Mismatches), a.Forked, a.RolledBack, a.Kills,
		max(0, a.Starts-1))
}

// The lines of operations that made a snapshot. A pause without memory made none: it leaves a disk.
var (
	madeLine = regexp.MustCompile(`msg=(branched|paused|"snapshot created"|"snapshot compacted") `)
	coldLine = regexp.MustCompile(`msg=paused .* cold=true `)
)

func accountOf(log string) (a Account) {
	for line := range strings.Lines(log) {
		switch {
		case strings.Contains(line, `msg="`+sandbox.OracleMismatch+`" `):
			a.Mismatches = append(a.Mismatches, line)
		case strings.Contains(line, `msg="`+sandbox.OracleChecked+`" `):
			a.Checked++
			a.Pages += number(line, "pages")
			took, _ := time.ParseDuration(value(line, "took"))
			a.Took += took
		case madeLine.MatchString(line) && !coldLine.MatchString(line):
			a.Made++
		case strings.Contains(line, "msg=forked "):
			a.Forked += number(line, "n")
		case strings.Contains(line, `msg="rolled back" `):
			a.RolledBack++
		}
	}
	return a
}

var field = regexp.MustCompile(` ([a-z]+)=(\S+)`)

// value is that of a field in a line of the log; empty if it has none.
func value(line, name string) string {
	for _, f := range field.FindAllStringSubmatch(line, -1) {
		if f[1] == name {
			return f[2]
		}
	}
	return ""
}

func number(line, name string) int {
	n, _ := strconv.Atoi(value(line, name))
	return n
}

// Account is what the daemon has done in all of its runs.
func (d *Daemon) Account() Account {
	a := accountOf(d.wholeLog())
	a.Kills, a.Starts = int(d.kills.Load()), d.starts
	return a
}

// check says what the oracle has found, and whether it was asleep. Wanted are the
// mismatches that a test has brought about.
func (a Account) check(wanted int) error {
	var errs []error
	if len(a.Mismatches) != wanted {
		errs = append(errs, fmt.Errorf("the oracle has found %d snapshots that differ from their sources, want %d:\n%s",
			len(a.Mismatches), wanted, strings.Join(a.Mismatches, "")))
	}
	if a.Checked < a.Made {
		errs = append(errs, fmt.Errorf("%d snapshots were made, and the oracle has compared %d", a.Made, a.Checked))
	}
	return errors.Join(errs...)
}

func (d *Daemon) checkOracle(a Account) error {
	if d.oracleOff() {
		return nil
	}
	return a.check(d.Mismatches)
}
