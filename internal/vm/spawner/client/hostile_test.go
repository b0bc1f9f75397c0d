package client

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/confine/jail/jailtest"
	"github.com/forkd/forkd/internal/confine/seccomp"
	vmclient "github.com/forkd/forkd/internal/vm/vmctl/client"
	vmwire "github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// A process in the jail without a filter makes all attempts. Most fail. The table marks attempts
// that only a filter stops.
func TestAnInmateReachesNothing(t *testing.T) {
	s := openSpawner(t, os.Geteuid() == 0)
	o := order{World: world(t)}
	got := mustLaunch(t, s).ask(t, o)
	count := map[string]int{}
	var could []string
	for _, a := range jailtest.Attempts() {
		want := jailtest.Outcomes[a.Name]
		alone := want.Alone
		switch {
		case !ownUsers() && want.Rootless != "":
			alone = want.Rootless
		case ownUsers() && os.Geteuid() != 0 && a.Name == "another user":
			alone = "EINVAL" // the map has only its own range
		}
		if !jailtest.Is(got[a.Name], alone) {
			t.Errorf("%s: %q, want %s", a.Name, got[a.Name], alone)
		}
		if count[got[a.Name]]++; got[a.Name] == jailtest.OK {
			could = append(could, a.Name)
		}
	}
	t.Logf("%d attempts: %v; it could: %q", len(jailtest.Attempts()), count, could)
	for name, want := range map[string]string{
		"pagemap": jailtest.OK, "/dev/userfaultfd": jailtest.OK,
		"the host's /proc by its own": "EACCES", "the host's root by its own /proc": "ENOENT",
	} {
		if how, tried := got[name]; how != want && (tried || name != "/dev/userfaultfd") {
			t.Errorf("%s: %q, want %s", name, how, want)
		}
	}
	// The test makes the same attempts outside of a jail, so the attempts are valid.
	for _, name := range []string{
		"a file of the daemon", "an abstract socket", "a socket by its path", "TCP to the host", "a signal to a process",
		"a handle of a process", "a process's pages", "a queued signal", "signals of a file", "another's CPUs",
	} {
		a, _ := jailtest.Named(name)
		if how := a.Try(o.World); how != jailtest.OK {
			t.Errorf("outside of the jail, %s: %s", name, how)
		}
	}
}

// filters are the filters of a process in the jail, one more in each row.
var filters = []struct {
	name  string
	order string // filters that it installs itself, like a VMM
	want  func(jailtest.Outcome) string
}{
	{"spawn", "", func(o jailtest.Outcome) string {
		if o.Spawn == "" {
			return "" // it lives, whatever the result
		}
		return o.Spawn
	}},
	{"vm", filterVM, func(o jailtest.Outcome) string {
		if o.VM == "" {
			return jailtest.Killed
		}
		return o.VM
	}},
	{"vcpu", filterVCPU, func(o jailtest.Outcome) string { return jailtest.Killed + " " + o.VM }},
}

// Each attempt is made by its own process, under the filter that the jail has from the first
// instruction on, and under the filters that a VMM adds.
func TestAttemptsUnderFilters(t *testing.T) {
	if err := seccomp.Available(); err != nil {
		t.Skip(err)
	}
	s := openSpawner(t, os.Geteuid() == 0)
	w := world(t)
	for _, f := range filters {
		t.Run(f.name, func(t *testing.T) {
			count := map[string]int{}
			var alive []string // one process makes all attempts that it survives
			for _, a := range jailtest.Attempts() {
				want := f.want(jailtest.Outcomes[a.Name])
				if !strings.Contains(want, jailtest.Killed) {
					alive = append(alive, a.Name)
					continue
				}
				got := onItsOwn(t, s, order{World: w, Only: []string{a.Name}, Filter: f.order})
				if !jailtest.Is(got[a.Name], want) {
					t.Errorf("%s: %q, want %q", a.Name, got, want)
				}
				count[got[a.Name]]++
			}
			if len(alive) > 0 {
				got := onItsOwn(t, s, order{World: w, Only: alive, Filter: f.order})
				for _, name := range alive {
					if want := f.want(jailtest.Outcomes[name]); got[name] == jailtest.Killed || want != "" && !jailtest.Is(got[name], want) {
						t.Errorf("%s: %q, want %q", name, got[name], want)
					}
					count[got[name]]++
				}
			}
			t.Logf("%d attempts: %v", len(jailtest.Attempts()), count)
		})
	}
}

// filtered starts an inmate with the initial filter.
func filtered(t *testing.T, s *Spawner, points *os.File) *inside {
	t.Helper()
	in, err := launchWith(t, s, vmclient.Launch{Start: vmwire.Start{Seccomp: seccomp.On}, Failpoints: points})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// nothing is the list of attempts of a process that must only exist.
var nothing = []string{"nothing"}

// onItsOwn makes a new process try, and returns the result.
func onItsOwn(t *testing.T, s *Spawner, o order) (a answers) {
	t.Helper()
	in := filtered(t, s, nil)
	defer in.PIDFD.Close()
	in.tell(t, o)
	line, err := bufio.NewReader(in.conn).ReadBytes('\n')
	in.conn.Close()
	if err != nil {
		if how := in.Ended(); how != "signal: bad system call" {
			t.Errorf("%s: it ended with %q", o.Only, how)
		}
		a = answers{}
		for _, name := range o.Only {
			a[name] = jailtest.Killed
		}
		return a
	}
	_ = signalKill(in.PIDFD)
	in.Ended()
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// A filter that only logs takes nothing away.
func TestAnInmateWhoseFilterOnlyTells(t *testing.T) {
	if err := seccomp.Available(); err != nil {
		t.Skip(err)
	}
	s := openSpawner(t, os.Geteuid() == 0)
	in, err := launchWith(t, s, vmclient.Launch{Start: vmwire.Start{Seccomp: seccomp.Log}})
	if err != nil {
		t.Fatal(err)
	}
	if got := in.ask(t, order{Only: []string{"a mount"}}); got["a mount"] != "EPERM" {
		t.Errorf("a mount: %q", got["a mount"])
	}
}

// The kernel reports the filter as on, and the number of filters including a VMM's.
func TestFiltersAreOn(t *testing.T) {
	if err := seccomp.Available(); err != nil {
		t.Skip(err)
	}
	s := openSpawner(t, os.Geteuid() == 0)
	if !s.Want().Has(jail.Calls) {
		t.Fatal("it is no part of the jail on this host")
	}
	for _, c := range []struct {
		in            *inside
		order         order
		mode, filters string
	}{
		{mustLaunch(t, s), order{Only: nothing}, "0", "0"},
		{filtered(t, s, nil), order{Only: nothing}, "2", "1"},
		{filtered(t, s, nil), order{Only: nothing, Filter: filterVM}, "2", "2"},
	} {
		c.in.ask(t, c.order)
		status := statusOf(t, fmt.Sprintf("/proc/%d/", c.in.PID))
		if status["Seccomp"] != c.mode || status["Seccomp_filters"] != c.filters {
			t.Errorf("%+v: mode %s, %s filters, want %s, %s", c.order, status["Seccomp"], status["Seccomp_filters"], c.mode, c.filters)
		}
	}
}
