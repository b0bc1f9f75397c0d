package operation

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// phase is an event of the operation. It returns after the alerts in fires are firing and it has removed
// their cause. Alerts in may can be a consequence. All others must stay silent.
type phase struct {
	name       string
	fires, may []string
	run        func(t *testing.T, w *world, firing func())
	calm       bool // the work beside it must not fail
}

var week = []phase{
	{name: "work", calm: true, run: theWork},
	{name: "VMMs are killed", fires: []string{"ForkdSandboxesFail"}, run: killVMMs},
	{name: "the spawner and the network daemon are killed", run: killHelpers, may: []string{"ForkdForkFailures"}},
	{name: "the daemon is killed", fires: []string{"ForkdRestarts"}, run: killDaemon, may: []string{"ForkdDown", "ForkdForkFailures"}},
	{name: "the daemon hangs", fires: []string{"ForkdDown"}, run: hangDaemon},
	{name: "a forgotten drain", fires: []string{"ForkdDraining"}, run: drain},
	{name: "a full disk", fires: []string{"ForkdDiskNearlyFull", "ForkdSandboxesStalled"}, run: fillDisk, may: []string{"ForkdForkFailures", "ForkdAdmitsNoVMs"}},
	{name: "guests without memory", fires: []string{"ForkdGuestOOMKills"}, run: guestsOOM},
	{name: "guessed keys", fires: []string{"ForkdUnauthorized"}, run: guessKeys, calm: true},
	{name: "a damaged snapshot", fires: []string{"ForkdSnapshotsDamaged"}, run: damage},
	{name: "an upgrade", run: upgrade, may: []string{"ForkdDown", "ForkdForkFailures"}},
}

func TestWeek(t *testing.T) {
	kvmtest.Soak(t)
	w := &world{spans: &spans{seen: map[string]int{}}, config: filepath.Join(t.TempDir(), "serve.conf")}
	write(t, w.config, []byte("--traces=http://10.0.2.2:"+startCollector(t, w.spans)+"\n"))
	w.Machine = harness.StartMachine(t, "-operation", "--serve-config", w.config)
	t.Cleanup(func() { _, _ = w.try("drain", "--cancel") })
	w.Image(t, "python-numpy", tag)
	w.prometheus = startPrometheus(t, w.URL, w.Token)
	w.ids = w.fork(t, 3)
	w.mark(t, w.ids)
	began := time.Now()

	for _, p := range week {
		t.Run(p.name, func(t *testing.T) { w.pass(t, p) })
	}
	t.Run("the dashboard", func(t *testing.T) { w.checkDashboard(t, began) })
	w.Forkd(t, append([]string{"kill"}, w.ids...)...)
	t.Run("nothing is left", w.checkLeftovers)
	t.Run("traces", w.checkTraces)
}

// pass runs a phase beside continuous work, and compares the alerts.
func (w *world) pass(t *testing.T, p phase) {
	began := time.Now()
	k := w.startWork()
	defer k.end() // also after a failure of the phase
	p.run(t, w, func() {
		t.Helper()
		eventually(t, 3*time.Minute, "alerts fire: "+strings.Join(p.fires, " "), func() bool {
			fired := w.fired(t, began)
			return !slices.ContainsFunc(p.fires, func(a string) bool { return !slices.Contains(fired, a) })
		})
	})
	rounds, failures := k.end()
	t.Logf("%d rounds of work, %d failed, in %s", rounds, len(failures), time.Since(began).Round(time.Second))
	if p.calm && len(failures) > 0 {
		t.Errorf("the work failed: %s", strings.Join(failures, "\n"))
	}
	w.answers(t, w.ids)
	w.recover(t)
	eventually(t, 4*time.Minute, "all alerts end", func() bool { return len(w.alerts(t, "firing|pending")) == 0 })
	for _, a := range w.fired(t, began) {
		if !slices.Contains(p.fires, a) && !slices.Contains(p.may, a) {
			t.Errorf("%s fired", a)
		}
	}
}

// recover waits until a whole round of work succeeds, and removes what interrupted rounds left behind.
func (w *world) recover(t *testing.T) {
	t.Helper()
	var last error
	eventually(t, 2*time.Minute, "the work succeeds again", func() bool {
		if last = w.round(9999); last != nil {
			t.Logf("not yet: %v", last)
		}
		return last == nil
	})
	for _, id := range strings.Fields(string(w.Forkd(t, "-q", "ps"))) {
		if !slices.Contains(w.ids, id) {
			w.Forkd(t, "kill", id)
		}
	}
	for _, s := range strings.Fields(string(w.Forkd(t, "-q", "snapshot", "ls"))) {
		if strings.HasPrefix(s, tag+"-") {
			eventually(t, time.Minute, "snapshot "+s+" is removed", func() bool {
				_, err := w.try("snapshot", "rm", "--cascade", s)
				if err != nil {
					t.Logf("not yet: %v", err)
				}
				return err == nil
			})
		}
	}
}

// mayBeEmpty are the panels that have data only if something fails that need not fail here.
var mayBeEmpty = []string{"Failed operations"}

func (w *world) checkDashboard(t *testing.T, began time.Time) {
	var empty []string
	for title, queries := range dashboardQueries(t) {
		points := 0
		for _, q := range queries {
			for _, s := range w.over(t, q, began, 5*time.Second) {
				points += len(s.Values)
			}
		}
		if points == 0 && !slices.Contains(mayBeEmpty, title) {
			empty = append(empty, title)
		}
	}
	if slices.Sort(empty); len(empty) > 0 {
		t.Errorf("panels without data: %q", empty)
	}
}

func (w *world) checkLeftovers(t *testing.T) {
	eventually(t, time.Minute, "no VMM is left", func() bool { return len(w.pids(t, "forkd-vmm")) == 0 })
	if out := w.Forkd(t, "-q", "ps"); len(out) > 0 {
		t.Errorf("sandboxes are left: %s", out)
	}
	w.Forkd(t, "store", "gc")
	w.Forkd(t, "snapshot", "verify", tag)
}

// notMade are spans that this operation does not make: of unknown steps, of forks of groups, of replaced agents, and of
// digests that only tests ask for.
var notMade = []string{"guest.freeze", "guest.other", "step.agent", "vmm.digest", "vmm.group", "vmm.other"}

var spanRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// checkTraces compares the received spans with the list in the documentation.
func (w *world) checkTraces(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Spans")
	want := map[string]bool{}
	for _, m := range spanRow.FindAllStringSubmatch(table, -1) {
		want[m[1]] = true
	}
	seen := w.spans.names()
	for name := range seen {
		if method, _, request := strings.Cut(name, " /"); request && method == strings.ToUpper(method) {
			want["METHOD ROUTE"] = false
			delete(seen, name)
		}
	}
	for _, name := range notMade {
		if _, made := seen[name]; made {
			t.Errorf("the span %q is made, and listed as not made", name)
		}
		want[name] = false
	}
	for name := range seen {
		if _, listed := want[name]; !listed {
			t.Errorf("the span %q is not in docs/operate/tracing.md", name)
		}
		want[name] = false
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if want[name] {
			t.Errorf("the collector received no span %q", name)
		}
	}
	t.Logf("spans: %v", seen)
}
