package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// own lists, as Python, the values that must be unique to each child.
var own = []struct{ what, code string }{
	{"hostname", "socket.gethostname()"},
	{"machine-id", "open('/etc/machine-id').read()"},
	{"boot-id", "open('/proc/sys/kernel/random/boot_id').read()"},
	{"getrandom", "os.urandom(16).hex()"},
	{"dev-urandom", "open('/dev/urandom', 'rb').read(16).hex()"},
	{"random", "random.random()"},
	{"random.SystemRandom", "random.SystemRandom().random()"},
	{"numpy.random", "numpy.random.rand(2).tolist()"},
	{"numpy.random.default_rng", "numpy.random.default_rng().random(2).tolist()"},
	{"a random.Random of the parent", "warm_random.random()"},
	{"a numpy Generator of the parent", "warm_rng.random(2).tolist()"},
	{"a numpy RandomState of the parent", "warm_state[0].rand(2).tolist()"},
	{"one of another kind", "warm_philox.rand(2).tolist()"},
	{"OpenSSL", "ssl.RAND_bytes(16).hex()"},
	{"uuid4", "str(uuid.uuid4())"},
	{"tempfile", "tempfile.mktemp()"},
}

// Ten children of one parent differ in all values of own.
func TestChildrenAreThemselves(t *testing.T) {
	d := shared(t)
	d.unchanged()
	d.themselves(d.forkRed(10))
}

// Shells become normal children after a wait: their values differ, their clocks are right, and
// their uptime does not include the wait of the shell.
func TestChildrenOfPreparedShellsAreThemselves(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	const n, wait = 4, 10 * time.Second
	uptime := func(sb api.SandboxInfo) time.Duration {
		ns, err := strconv.ParseInt(d.eval(sb.ID, "time.clock_gettime_ns(time.CLOCK_BOOTTIME)"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(ns)
	}
	since := time.Now()
	saved := uptime(d.forkRed(1)[0]) - time.Since(since) // the snapshot's, or slightly less
	if err := d.c.SetPool(t.Context(), parentTag, n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.c.SetPool(context.Background(), parentTag, 0); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "full pool", func() bool { return d.pool().Ready == n })
	time.Sleep(wait) // elapses: the children's uptime must not count it
	since = time.Now()
	sbs := d.forkRed(n)
	for _, sb := range sbs {
		if up, most := uptime(sb), saved+time.Since(since)+wait/2; up > most {
			t.Errorf("%s is up %s, want at most %s: it was counted while it waited", sb.ID, up, most)
		}
		if r := d.sandboxReceipt(sb.ID); r.VM == nil || !r.VM.Prepared {
			t.Errorf("%s was made from no prepared shell: %+v", sb.ID, r.VM)
		}
	}
	d.themselves(sbs)
}

func (d *daemon) forkRed(n int) []api.SandboxInfo {
	d.t.Helper()
	sbs := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, Env: map[string]string{"COLOUR": "red"}}).OK()
	if len(sbs) != n {
		d.t.Fatalf("%d children", len(sbs))
	}
	return sbs
}

// themselves checks all children of one fork.
func (d *daemon) themselves(sbs []api.SandboxInfo) {
	d.t.Helper()
	t := d.t
	var codes []string
	for _, o := range own {
		codes = append(codes, o.code)
	}
	seen := map[string]string{} // the owner, by name and value
	for _, sb := range sbs {
		for i, v := range d.list(sb.ID, codes...) {
			what := own[i].what
			if other := seen[what+v]; other != "" || v == "" {
				t.Errorf("%s: %s and %s both have %q", what, sb.ID, other, v)
			}
			seen[what+v] = sb.ID
		}
	}
	d.sub("names and environment", func(t *testing.T) { d.namesAndEnvironment(sbs) })
	d.sub("clock", func(t *testing.T) { d.clocks(sbs) })
	d.sub("memory and files are their own", func(t *testing.T) { d.apart(sbs[0], sbs[1:4]) })
}

// list evaluates expressions in one call and returns their values as text.
func (d *daemon) list(id string, codes ...string) []string {
	d.t.Helper()
	text := d.eval(id, "print(__import__('json').dumps([str(v) for v in ["+strings.Join(codes, ", ")+"]]))")
	var out []string
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(out) != len(codes) {
		d.t.Fatalf("%s says %q: %v", id, text, err)
	}
	return out
}

func (d *daemon) namesAndEnvironment(sbs []api.SandboxInfo) {
	for i, sb := range sbs {
		want := fmt.Sprintf("%s %s %d %s red", sb.ID, sb.ID, i+1, parentTag)
		got := strings.Join(d.list(sb.ID, "open('/etc/hostname').read().strip()", "os.uname().nodename",
			"os.environ['FORKD_INDEX']", "os.environ['FORKD_PARENT']", "os.environ['COLOUR']"), " ")
		if got != want {
			d.t.Errorf("the interpreter in %s sees %q, want %q", sb.ID, got, want)
		}
		if sb.Index != i+1 || sb.Hostname != sb.ID || sb.SnapshotTag != parentTag {
			d.t.Errorf("the API says %+v", sb)
		}
	}
	last := sbs[len(sbs)-1]
	if got, want := d.sh(last.ID, "echo $FORKD_SANDBOX_ID $FORKD_INDEX $FORKD_PARENT $COLOUR"), fmt.Sprintf("%s %d %s red", last.ID, last.Index, parentTag); got != want {
		d.t.Errorf("a command in %s sees %q, want %q", last.ID, got, want)
	}
}

// clocks compares guests' clocks with this host's clock before and after the reading, so slowness
// causes no error.
func (d *daemon) clocks(sbs []api.SandboxInfo) {
	for _, sb := range sbs {
		before := time.Now()
		ns, err := strconv.ParseInt(d.eval(sb.ID, "time.time_ns()"), 10, 64)
		if err != nil {
			d.t.Fatal(err)
		}
		if at := time.Unix(0, ns); at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			d.t.Errorf("%s: its clock says %s, it is %s", sb.ID, at, before)
		}
	}
}

func (d *daemon) apart(first api.SandboxInfo, others []api.SandboxInfo) {
	d.eval(first.ID, "colour = 'mine'")
	d.sh(first.ID, "echo mine | tee /etc/mine /tmp/mine /dev/shm/mine > /home/user/mine; echo mine >> /etc/hosts; rm /etc/debian_version")
	for _, sb := range others {
		if got := d.eval(sb.ID, "colour"); got != "'none'" {
			d.t.Errorf("a variable of %s is %s in %s", first.ID, got, sb.ID)
		}
		if got := d.sh(sb.ID, "ls /etc/mine /tmp/mine /dev/shm/mine /home/user/mine 2>/dev/null; grep mine /etc/hosts; cat /etc/debian_version"); !strings.HasPrefix(got, "12.") {
			d.t.Errorf("%s sees %q of %s", sb.ID, got, first.ID)
		}
	}
	if got := d.eval(first.ID, "colour"); got != "'mine'" {
		d.t.Errorf("its own variable is %s", got)
	}
}
