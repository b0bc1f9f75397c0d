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

// Daemons of this package run with the oracle (sandbox.Config.Oracle) unless their suite disables
// it: each snapshot is compared with its source before it can be forked. FORKD_TEST_ORACLE=0
// disables the oracle for a run of the tests. FORKD_TEST_ORACLE=1 and a soak enable it for all
// daemons except measured ones.

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

// Account is the sum of a daemon's work over all of its runs, from its log.
type Account struct {
	Made       int           // snapshots made by successful operations
	Checked    int           // snapshots compared by the oracle
	Pages      int           // pages of memory and disks in the compared snapshots
	Took       time.Duration // time to read the snapshots back and compare them
	Mismatches []string

	Forked, RolledBack int // children, sandboxes
	Kills, Starts      int // by the tests: kills of sandboxes, starts of the daemon
}

// String returns a line for the sum of test/runner in a soak.
func (a Account) String() string {
	return fmt.Sprintf("soak: captures_made=%d captures_compared=%d pages_compared=%d ms_of_comparing=%d mismatches=%d "+
		"children_forked=%d rollbacks=%d kills=%d daemon_restarts=%d",
		a.Made, a.Checked, a.Pages, a.Took.Milliseconds(), len(a.Mismatches), a.Forked, a.RolledBack, a.Kills,
		max(0, a.Starts-1))
}

// The log lines of operations with a new snapshot. A pause without memory makes no snapshot; it
// leaves a disk.
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

// value returns a field of a log line, or an empty string if the field is missing.
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

// Account returns the daemon's work over all of its runs.
func (d *Daemon) Account() Account {
	a := accountOf(d.wholeLog())
	a.Kills, a.Starts = int(d.kills.Load()), d.starts
	return a
}

// check returns an error for unexpected mismatches, and for an oracle that did not run. wanted is the number
// of mismatches caused by the test.
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
