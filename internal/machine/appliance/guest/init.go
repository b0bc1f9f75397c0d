package guest

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/fairserver"
)

// step is one named part of the boot. If a step fails, the failure is reported and the boot continues: an
// appliance with a console and an agent can be debugged, a stopped one cannot.
type step struct {
	name string
	run  func(*appliance) error
}

var (
	firstSteps = []step{
		{"mount system directories", (*appliance).mountSystem},
		{"load drivers", (*appliance).loadDevices},
	}
	// parallelSteps are independent of each other and mostly wait.
	parallelSteps = []step{
		{"load modules", (*appliance).loadRest},
		{"raise limits", (*appliance).raiseLimits},
		{"switch off fair servers", func(*appliance) error { return fairserver.Off() }},
		{"configure network", (*appliance).configureNetwork},
		{"mount data disk", (*appliance).mountData},
	}
)

// appliance is the running system from the view of its init.
type appliance struct {
	cfg     Config
	console *os.File
	sup     *supervisor
	held    []any // must not be garbage-collected, see keepKVM
}

// Run boots the appliance and runs until power-off. It does not return.
func Run() {
	a := &appliance{console: os.Stderr}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "machine-init: must be the first process of the appliance")
		os.Exit(1)
	}
	cfg, err := readConfig(ConfigPath)
	if err != nil {
		a.logf("%v", err)
	}
	a.cfg = cfg
	for _, s := range firstSteps {
		a.do(s)
	}
	var wg sync.WaitGroup
	for _, s := range parallelSteps {
		wg.Go(func() { a.do(s) })
	}
	wg.Wait()
	a.do(step{"hold KVM", (*appliance).keepKVM})
	a.do(step{"hold a CPU quota", keepQuota})
	a.sup = newSupervisor(a.logf)
	a.sup.start(a.cfg.Services)
	a.logf("up after %s", uptime().Round(10*time.Millisecond))
	a.serveControl()
}

func (a *appliance) do(s step) {
	if err := s.run(a); err != nil {
		a.logf("%s: %v", s.name, err)
	}
}

func (a *appliance) logf(format string, args ...any) {
	fmt.Fprintf(a.console, "forkd-machine: "+format+"\n", args...)
}

func uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
