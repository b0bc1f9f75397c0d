package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/failpoint/failpointtest"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// In a strict jail a VMM owns no resources, however it was started, and forks, branches and
// programs in its guest work as usual. It still reports failpoint steps, over an inherited
// descriptor.
func TestVMMsInAJailOwnNothing(t *testing.T) {
	kvmtest.Require(t)
	d := secondDaemon(t, "--jail", "strict", "--pool", "1")
	points, err := failpointtest.Listen(filepath.Join(d.Dir, "points"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(points.Close)
	d.Env = points.Environ()
	if err := linkedImage(t, d.images(), "box"); err != nil {
		t.Fatal(err)
	}
	d.start()
	j := &jailed{d: d, users: map[string]string{}, namespaces: map[string]string{}, groups: map[string]string{}}
	points.Arm(failpoint.CreateBooted)
	made := make(chan error, 1)
	go func() {
		_, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "parent", Image: "box"}, nil)
		made <- err
	}()
	eventually(t, "booted VMM", func() bool { return points.Reached(failpoint.CreateBooted) })
	for _, pid := range d.processes() {
		j.check("booted", pid)
	}
	points.Disarm(failpoint.CreateBooted)
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	n := 2
	for i, sb := range d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "parent", N: &n}).OK() {
		how := fmt.Sprint("child ", i)
		j.check(how, *sb.PID)
		if got := d.sh(sb.ID, "echo hello"); got != "hello" {
			t.Errorf("%s says %q", sb.ID, got)
		}
		points.Passed()
		res := d.branch(sb.ID, api.BranchRequest{Tag: "of-" + sb.ID, Mode: api.BranchLive, N: 1})
		if res.Mechanism != "wp-async" {
			t.Errorf("its live branch found writes by %q", res.Mechanism)
		}
		if steps := points.Passed(); !slices.Contains(steps, failpoint.CaptureHeld) {
			t.Errorf("of the steps in the VMM only these were told: %v", steps)
		}
		j.check(how+" after a live branch", *sb.PID)
		j.check(how+" of a live branch", *res.Children[0].PID)
		if info := d.rollback(sb.ID, "parent"); info.PID == nil {
			t.Errorf("rolled back: %+v", info)
		} else {
			j.check(how+" after a rollback", *info.PID)
		}
	}
	all := d.processes()
	for _, pid := range all { // includes VMMs in the pool and new ones
		eventually(t, "VMM with its filters", func() bool { return filterOfVCPUs(fmt.Sprintf("/proc/%d", pid)) > 0 })
		j.check("any", pid)
	}
	t.Logf("VMMs of %d users were looked at, %d at the end", len(j.users), len(all))
	if harness.Ordinary() == nil && len(j.users) < 7 {
		t.Errorf("only of %d users", len(j.users))
	}
}

// jailed records properties of jailed VMMs. No two VMMs may share one.
type jailed struct {
	d                         *daemon
	users, namespaces, groups map[string]string // the owner, by value
	network                   string            // shared by all VMMs
}

// check compares the kernel's view of a VMM's process with its allowed rights.
func (j *jailed) check(how string, pid int) {
	j.d.t.Helper()
	t, proc := j.d.t, fmt.Sprintf("/proc/%d", pid)
	who := fmt.Sprintf("VMM %d (%s)", pid, how)
	status := statusOf(t, proc)
	for name, want := range map[string]string{
		"CapInh": "0", "CapPrm": "0", "CapEff": "0", "CapBnd": "0", "CapAmb": "0", "NoNewPrivs": "1", "Seccomp": "2", "Groups": "",
	} {
		if got := strings.TrimLeft(status[name], "0"); got != strings.TrimLeft(want, "0") {
			t.Errorf("%s: %s is %q, want %q", who, name, status[name], want)
		}
	}
	if files, err := os.ReadDir(proc + "/root"); err != nil || len(files) != 0 {
		t.Errorf("%s: its root holds %v, %v", who, files, err)
	}
	if b, err := os.ReadFile(proc + "/oom_score_adj"); err != nil || strings.TrimSpace(string(b)) != "500" {
		t.Errorf("%s: its oom_score_adj is %q, %v", who, b, err)
	}
	uid := regexp.MustCompile(`^\d+`).FindString(status["Uid"])
	if uid == "0" {
		t.Errorf("%s is root", who)
	}
	if harness.Ordinary() == nil { // otherwise all run as one user, separated by namespaces
		j.alone(who, pid, "user", uid, j.users)
	}
	j.inNamespaces(who, pid)
	j.filtered(who, proc)
	j.limited(who, pid)
	j.descriptors(who, proc)
}

// alone checks that only this process has a property.
func (j *jailed) alone(who string, pid int, what, is string, known map[string]string) {
	j.d.t.Helper()
	other, ok := known[is]
	if _, err := os.Stat("/proc/" + other); err != nil {
		ok = false // it has ended: the kernel reuses the numbers of namespaces
	}
	if ok && other != strconv.Itoa(pid) {
		j.d.t.Errorf("%s has the %s %s, as VMM %s has", who, what, is, other)
	}
	known[is] = strconv.Itoa(pid)
}

func (j *jailed) inNamespaces(who string, pid int) {
	t := j.d.t
	t.Helper()
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		theirs, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		ours, err2 := os.Readlink("/proc/self/ns/" + ns)
		if err1 != nil || err2 != nil || theirs == ours {
			t.Errorf("%s: namespace %s is %s, ours %s (%v, %v)", who, ns, theirs, ours, err1, err2)
		}
		if ns != "net" {
			j.alone(who, pid, "namespace", theirs, j.namespaces)
			continue
		}
		if j.network != "" && j.network != theirs {
			t.Errorf("%s: its network is %s, others have %s", who, theirs, j.network)
		}
		j.network = theirs
	}
}

// filterOfVCPUs returns the number of threads with a vCPU's filter, in addition to the filters of
// the jail and the process.
func filterOfVCPUs(proc string) (n int) {
	for _, thread := range names(proc + "/task") {
		b, _ := os.ReadFile(proc + "/task/" + thread + "/status")
		if strings.Contains(string(b), "\nSeccomp_filters:\t3\n") {
			n++
		}
	}
	return n
}

// filtered checks the filters of each thread: the jail's and the process's, and one more on the
// vCPU's thread.
func (j *jailed) filtered(who, proc string) {
	t := j.d.t
	t.Helper()
	for _, thread := range names(proc + "/task") {
		b, err := os.ReadFile(proc + "/task/" + thread + "/status")
		if err != nil {
			continue // Go's threads start and end
		}
		if found := regexp.MustCompile(`(?m)^Seccomp:\t2\nSeccomp_filters:\t[23]$`).Find(b); found == nil {
			t.Errorf("%s: thread %s has not its filters:\n%s", who, thread, b)
		}
	}
	if n := filterOfVCPUs(proc); n != 1 {
		t.Errorf("%s: %d threads have a vCPU's filter, want 1", who, n)
	}
}

// limited checks resource limits and the control group.
func (j *jailed) limited(who string, pid int) {
	t := j.d.t
	t.Helper()
	for resource, most := range map[int]uint64{unix.RLIMIT_NOFILE: 2048, unix.RLIMIT_CORE: 0, unix.RLIMIT_MEMLOCK: 0, unix.RLIMIT_FSIZE: 1 << 47} {
		var l unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &l); err != nil || l.Max > most || l.Cur > most {
			t.Errorf("%s: limit %d is %+v, want at most %d, %v", who, resource, l, most, err)
		}
	}
	theirs, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	daemons, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", j.d.pid()))
	if err != nil {
		t.Fatal(err)
	}
	if string(theirs) == string(daemons) {
		t.Logf("%s: the daemon has no control groups to give", who)
		return
	}
	j.alone(who, pid, "control group", string(theirs), j.groups)
	if !pidsAreBounded(pid) {
		t.Errorf("%s: its control group %q does not bound its processes", who, theirs)
	}
}

// may lists the kinds of descriptors allowed in a VMM, by the kernel's names.
var may = []struct {
	kind   *regexp.Regexp
	writes bool
}{
	{regexp.MustCompile(`^socket:\[\d+\]$`), true}, // control, vsock, wire; here also the test's
	{regexp.MustCompile(`^anon_inode:(kvm-vm|kvm-vcpu:\d+|\[?eventfd\]?|\[?eventpoll\]?|\[?userfaultfd\]?)$`), true},
	{regexp.MustCompile(`^/dev/(null|userfaultfd)$`), true},
	{regexp.MustCompile(`/\d+/pagemap$`), false},
	{regexp.MustCompile(`^/memfd:`), false}, // the start gate, tables
}

// descriptors checks a VMM's descriptors: other files are read-only, and its own may be writable.
func (j *jailed) descriptors(who, proc string) {
	t := j.d.t
	t.Helper()
	kinds := map[string]int{}
	for _, fd := range names(proc + "/fd") {
		path, err := os.Readlink(proc + "/fd/" + fd)
		if err != nil {
			continue // closed meanwhile
		}
		kind, writes := j.kindOf(path)
		kinds[kind]++
		if kind == "" {
			t.Errorf("%s has descriptor %s: %s", who, fd, path)
		}
		if flags := openFlags(proc + "/fdinfo/" + fd); !writes && flags&unix.O_ACCMODE != unix.O_RDONLY {
			t.Errorf("%s may write %s by descriptor %s: flags %#o", who, path, fd, flags)
		}
	}
	t.Logf("%s has %v", who, kinds)
}

// kindOf returns a descriptor's kind, or an empty string if a VMM must not have it.
func (j *jailed) kindOf(path string) (kind string, writes bool) {
	for _, m := range may {
		if found := m.kind.FindString(path); found != "" {
			return regexp.MustCompile(`\d+`).ReplaceAllString(found, "N"), m.writes
		}
	}
	path = strings.TrimSuffix(path, " (deleted)")
	fixtures, err := filepath.EvalSymlinks(kvmtest.Fixture(j.d.t, "vmlinux"))
	if err != nil {
		j.d.t.Fatal(err)
	}
	for dir, writes := range map[string]bool{
		filepath.Join(j.d.Run, "vm"):         true, // console, log
		j.d.owns():                           true, // overlays of its disks
		filepath.Join(j.d.Data, "layers"):    false,
		filepath.Join(j.d.Data, "snapshots"): false,
		j.d.images():                         false,
		filepath.Dir(fixtures):               false,
		os.TempDir():                         false, // the image of this test
	} {
		if strings.HasPrefix(path, dir+"/") && (dir != os.TempDir() || !strings.HasPrefix(path, j.d.Dir+"/")) {
			return filepath.Base(dir), writes
		}
	}
	return "", false
}

// openFlags returns the flags of an open file from its fdinfo.
func openFlags(info string) int {
	b, _ := os.ReadFile(info)
	flags, _ := strconv.ParseInt(string(regexp.MustCompile(`(?m)^flags:\s*(\d+)`).FindSubmatch(append(b, "\nflags: 0"...))[1]), 8, 64)
	return int(flags)
}

// statusOf returns the status file of a process or a thread.
func statusOf(t *testing.T, proc string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(proc + "/status")
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.TrimSpace(value)
	}
	return status
}
