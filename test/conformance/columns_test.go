package conformance

import (
	"encoding/json"
	"strings"
	"time"
)

// columns are the checks of each child. canary.py makes the first ones.
var columns = []string{
	"memory", "disk", "files", "unflushed", "open", "unlinked", "pipe", "tcp", "process", "napper", "sleeper", "timer",
	"instant", "clock", "uptime", "random", "names", "mac", "source", "apart",
}

// instant is the expected state of a child.
type instant struct {
	steps         int64 // exactly, or at least with load
	exact         bool
	era           int
	before, after report // of the source, before and after the instant; zero if there is none
	// asked is the time of the request for the child, and made the time when it existed.
	asked, made time.Time
}

// looksLike compares a child with the instant.
func (s *suite) looksLike(id string, at instant, cells *cells) {
	s.t.Helper()
	r := s.check(id)
	for who, said := range r.Complaints {
		cells.wrong(who, "%s: %q", id, said)
	}
	if r.Steps < at.steps || at.exact && r.Steps != at.steps || r.Era != at.era {
		cells.wrong("instant", "%s is at step %d of era %d, want %d of %d (exactly: %v)", id, r.Steps, r.Era, at.steps, at.era, at.exact)
	}
	s.clocks(id, r, at, cells)
	s.itself(id, cells)
}

// slowChild is the creation time of a child up to which its clock must be right. The clock is set
// to the time at which it was sent. With load, the transfer can take more than a second.
const slowChild = 2 * time.Second

// clocks checks that the wall clock is the host's, and that uptime continues from the instant.
func (s *suite) clocks(id string, r report, at instant, cells *cells) {
	const tolerance = time.Second
	late := tolerance + max(0, at.made.Sub(at.asked)-slowChild)
	if wall := time.Unix(0, r.WallNS); wall.Before(r.asked.Add(-late)) || wall.After(r.answered.Add(tolerance)) {
		cells.wrong("clock", "%s: its clock says %s, it was between %s and %s", id, wall, r.asked, r.answered)
	}
	if at.before.MonoNS == 0 {
		return
	}
	longest := r.answered.Sub(at.asked) + tolerance
	for _, c := range []struct {
		name               string
		before, after, now int64
	}{{"monotonic", at.before.MonoNS, at.after.MonoNS, r.MonoNS}, {"boottime", at.before.BootNS, at.after.BootNS, r.BootNS}} {
		if c.now < c.before {
			cells.wrong("uptime", "%s: %s went back by %s", id, c.name, time.Duration(c.before-c.now))
		}
		if ran := time.Duration(c.now - c.after); ran > longest {
			cells.wrong("uptime", "%s: %s went on by %s in at most %s", id, c.name, ran, longest)
		}
	}
}

// own lists the values that no two sandboxes may share, as Python, by column.
var own = []struct{ column, what, code string }{
	{"random", "getrandom", "os.getrandom(16).hex()"},
	{"random", "/dev/urandom", "open('/dev/urandom', 'rb').read(16).hex()"},
	{"random", "Python's random", "random.random()"},
	{"random", "Python's SystemRandom", "random.SystemRandom().random()"},
	{"random", "NumPy's global state", "numpy.random.rand(2).tolist()"},
	{"random", "NumPy's default_rng", "numpy.random.default_rng().random(2).tolist()"},
	{"random", "OpenSSL", "ssl.RAND_bytes(16).hex()"},
	{"random", "uuid4", "uuid.uuid4()"},
	{"random", "a program that MADV_WIPEONFORK warns", "json.loads(canary('look'))['drawn']"},
	{"random", "tempfile", "tempfile.mktemp()"},
	{"names", "hostname", "socket.gethostname()"},
	{"names", "machine-id", "open('/etc/machine-id').read()"},
	{"names", "boot-id", "open('/proc/sys/kernel/random/boot_id').read()"},
}

// macs returns the hardware addresses of Ethernet devices. There are none without a network.
const macs = `' '.join(open(f'/sys/class/net/{n}/address').read().strip() for n in sorted(os.listdir('/sys/class/net'))
	if os.path.isdir(f'/sys/class/net/{n}') and open(f'/sys/class/net/{n}/type').read().strip() == '1')`

// itself checks that no random number and no name of a sandbox occurs in another.
func (s *suite) itself(id string, cells *cells) {
	s.t.Helper()
	defer s.spend("itself", time.Now())
	var codes []string
	for _, o := range own {
		codes = append(codes, "str("+o.code+")")
	}
	var values []string
	text := s.eval(id, "print(json.dumps(["+strings.Join(append(codes, macs), ", ")+"]))")
	if err := json.Unmarshal([]byte(text), &values); err != nil || len(values) != len(own)+1 {
		s.t.Fatalf("%s says %q: %v", id, text, err)
	}
	for i, o := range own {
		s.once(id, o.column, o.what, values[i], cells)
	}
	addresses := strings.Fields(values[len(own)])
	if len(addresses) == 0 {
		cells.note("mac", "none")
	}
	for _, mac := range addresses {
		s.once(id, "mac", "MAC", mac, cells)
	}
}

// once records a value that must be unique to a sandbox. A sandbox that was rolled back keeps its
// names, but no random number.
func (s *suite) once(id, column, what, value string, cells *cells) {
	key := what + "=" + value
	if other, there := s.seen[key]; there && (other != id || column == "random") || value == "" {
		cells.wrong(column, "%s: %s is %q, as in %s", id, what, value, other)
	}
	s.seen[key] = id
}
