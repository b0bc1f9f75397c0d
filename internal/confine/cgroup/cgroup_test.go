package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// The test binary also runs in the groups, with one of these roles: a number of MiB to allocate, "spin" (on the
// first CPU), or "daemon:" and a root's name.
const role = "FORKD_TEST_CGROUP"

func TestMain(m *testing.M) {
	switch what := os.Getenv(role); what {
	case "":
		os.Exit(m.Run())
	case "spin":
		runtime.LockOSThread()
		var first unix.CPUSet
		first.Set(0)
		if err := unix.SchedSetaffinity(0, &first); err != nil {
			panic(err)
		}
		for spin := true; spin; {
		}
	default:
		if name, is := strings.CutPrefix(what, "daemon:"); is {
			beDaemon(name)
			return
		}
		mib, _ := strconv.Atoi(what)
		b := make([]byte, mib<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		fmt.Println("taken")
		os.Stdin.Read(b[:1]) // until it is killed, or the test has ended
	}
}

// openRoot opens a part of the real hierarchy, and removes it after the test.
func openRoot(t *testing.T, needs ...Controller) *Root {
	t.Helper()
	r, err := Open(fmt.Sprintf("forkd-test-%d", os.Getpid()))
	if errors.Is(err, ErrUnsupported) {
		kvmtest.Require(t)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Sweep(nil); err != nil {
			t.Error(err)
		}
		r.Close()
		if _, err := os.Stat(r.dir); err == nil {
			t.Errorf("%s is left", r.dir)
		}
	})
	for _, c := range needs {
		if !slices.Contains(r.have, c) {
			kvmtest.Require(t)
			t.Fatalf("the machine lacks the %s controller: it has %v", c, r.have)
		}
	}
	return r
}

func killedBy(g *Group) Killed {
	by, _ := g.Killed()
	return by
}

func mustNew(t *testing.T, r *Root, tree Tree, l Limits) *Group {
	t.Helper()
	return mustNewOf(t, r, "", tree, l)
}

func mustNewOf(t *testing.T, r *Root, tenant string, tree Tree, l Limits) *Group {
	t.Helper()
	g, err := r.New(tenant, tree, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// run starts this binary in a group.
func run(t *testing.T, g *Group, what string) (p *exec.Cmd, said chan string) {
	t.Helper()
	dir, err := g.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	p = exec.Command("/proc/self/exe")
	p.Env = append(os.Environ(), role+"="+what)
	p.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	said = make(chan string, 1)
	go func() { // ends with the process
		b := make([]byte, 16)
		n, _ := out.Read(b)
		said <- string(b[:n])
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
		in.Close()
	})
	return p, said
}

func TestAProcessIsStartedInItsGroup(t *testing.T) {
	r := openRoot(t)
	for _, c := range []struct{ tenant, tree, around string }{{"", "", "."}, {"", "sb-1", "tree-sb-1"}, {"acme_1", "", "tenant-acme_1"},
		{"acme_1", "sb-1", "tenant-acme_1/tree-sb-1"}} {
		g := mustNewOf(t, r, c.tenant, Tree{Name: c.tree}, Limits{})
		if got := filepath.Dir(g.Name()); got != c.around || g.Tenant() != c.tenant {
			t.Errorf("it is in %q of %q, want %q of %q", got, g.Tenant(), c.around, c.tenant)
		}
		p, said := run(t, g, "1")
		if got := <-said; got != "taken\n" {
			t.Fatalf("it said %q", got)
		}
		b, err := os.ReadFile(filepath.Join(g.dir(), "cgroup.procs"))
		if err != nil || string(b) != fmt.Sprintln(p.Process.Pid) {
			t.Errorf("in the group are %q, %v, want %d", b, err, p.Process.Pid)
		}
		if u, err := g.Use(); err != nil || u.CPU == 0 {
			t.Errorf("use is %+v, %v", u, err)
		}
		if killedBy(g) != NotKilled {
			t.Error("it is thought to be killed")
		}
		// A later daemon finds the group, and its processes stay.
		if err := r.Sweep(nil); err != nil {
			t.Error(err)
		}
		again := r.Find(g.Name())
		if u, err := again.Use(); err != nil || u.CPU == 0 {
			t.Errorf("found again as %q: %+v, %v", again.Name(), u, err)
		}
		p.Process.Kill()
		p.Wait()
		if err := again.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(g.dir()); err == nil {
			t.Error("the group is left")
		}
		if _, err := g.Use(); err == nil {
			t.Error("it still uses something")
		}
		if _, err := os.Stat(filepath.Dir(g.dir())); c.around != "." && err == nil {
			t.Error("the group around it is left")
		}
	}
}

func TestAGroupIsRemovedLaterIfItHasProcesses(t *testing.T) {
	r := openRoot(t)
	g := mustNew(t, r, Tree{Name: "sb-2"}, Limits{})
	p, said := run(t, g, "1")
	<-said
	if err := g.Remove(); err != nil || len(r.left) != 1 {
		t.Errorf("removed while it has a process: %v, %v", err, r.left)
	}
	p.Process.Kill()
	p.Wait()
	other := mustNew(t, r, Tree{}, Limits{})
	if err := other.Remove(); err != nil || len(r.left) != 0 {
		t.Errorf("when another one is: %v, %v", err, r.left)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "tree-sb-2")); err == nil {
		t.Error("its tree's is left")
	}
}

func TestLeftoversAreSwept(t *testing.T) {
	r := openRoot(t)
	kept, gone := mustNew(t, r, Tree{Name: "a"}, Limits{}), mustNew(t, r, Tree{Name: "b"}, Limits{})
	again, err := Open(filepath.Base(r.dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Sweep(map[string]bool{kept.Name(): true}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(kept.dir()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(gone.dir())); err == nil {
		t.Error("what nobody uses is left")
	}
	third := mustNew(t, again, Tree{Name: "a"}, Limits{})
	if third.Name() == kept.Name() {
		t.Error("a later daemon takes a name that is in use")
	}
}

func TestALimitWithoutItsControllerIsAnError(t *testing.T) {
	r := openRoot(t)
	r.have = nil
	if _, err := r.New("", Tree{}, Limits{Memory: 1 << 30}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("of a group: %v", err)
	}
	if _, err := r.New("", Tree{"a", Limits{Weight: 10}}, Limits{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("of a tree: %v", err)
	}
	if l := (Limits{Memory: 1, CPUs: 1, PIDs: 9, Disk: DiskLimits{ReadBPS: 1}}).Only([]Controller{PIDs}); l != (Limits{PIDs: 9}) {
		t.Errorf("only what is there: %+v", l)
	}
}

func TestMemoryLimitEndsItsGroupOnly(t *testing.T) {
	r := openRoot(t, Memory)
	l := Limits{Memory: 64 << 20, Whole: true}
	victim, sibling := mustNew(t, r, Tree{}, l), mustNew(t, r, Tree{}, l)
	s, said := run(t, sibling, "8")
	<-said
	v, said := run(t, victim, "256")
	if got := <-said; got != "" {
		t.Errorf("it has %q", got)
	}
	if err := v.Wait(); err == nil || killedBy(victim) != ByOwn {
		t.Errorf("it ended with %v, and was killed by %v", err, killedBy(victim))
	}
	if _, limit := victim.Killed(); limit != l.Memory {
		t.Errorf("the limit was %d", limit)
	}
	if err := s.Process.Signal(syscall.Signal(0)); err != nil || killedBy(sibling) != NotKilled {
		t.Errorf("its sibling: %v, %v", err, killedBy(sibling))
	}
	if u, err := sibling.Use(); err != nil || u.Memory < 8<<20 || u.Peak < u.Memory {
		t.Errorf("use is %+v, %v", u, err)
	}
}

func TestATreeHasOneBudget(t *testing.T) {
	r := openRoot(t, Memory)
	tree := Tree{"sb-3", Limits{Memory: 64 << 20}}
	first, second := mustNew(t, r, tree, Limits{Whole: true}), mustNew(t, r, tree, Limits{Whole: true})
	_, said := run(t, first, "8")
	<-said
	p, said := run(t, second, "128") // the kernel kills the larger one
	if got := <-said; got != "" {
		t.Errorf("it has %q", got)
	}
	p.Wait()
	if killedBy(first) != NotKilled || killedBy(second) != ByTree {
		t.Errorf("killed: %v and %v", killedBy(first), killedBy(second))
	}
}

func TestCPULimitHoldsUp(t *testing.T) {
	r := openRoot(t, CPU)
	g := mustNew(t, r, Tree{}, Limits{CPUs: 0.1, Weight: 50})
	run(t, g, "spin")
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		u, err := g.Use()
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(begin)
		if u.Throttled > 0 && u.CPU > 100*time.Millisecond {
			if share := u.CPU.Seconds() / took.Seconds(); share > 0.5 {
				t.Errorf("it had %.2f CPUs", share)
			}
			return
		}
		if took > 30*time.Second {
			t.Fatalf("after %s it is not held up: %+v", took, u)
		}
	}
}

func TestSettings(t *testing.T) {
	l := Limits{Memory: 2, PIDs: 3, CPUs: 0.25, Weight: 7, Whole: true,
		Disk: DiskLimits{Device: "8:0", ReadBPS: 4, WriteBPS: 5}}
	want := map[string]string{"memory.max": "2", "memory.oom.group": "1", "pids.max": "3",
		"cpu.max": "25000 100000", "cpu.weight": "7", "io.max": "8:0 rbps=4 wbps=5"}
	for _, s := range l.settings() {
		if want[s.file] != s.value {
			t.Errorf("%s is %q, want %q", s.file, s.value, want[s.file])
		}
		delete(want, s.file)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if got := (Limits{CPUs: 0.001}).settings()[0].value; got != "1000 100000" {
		t.Errorf("the least quota is %q", got)
	}
	if len(Limits{}.settings()) > 0 {
		t.Error("no limits are settings")
	}
}

func TestAPartitionIsLimitedByItsDisk(t *testing.T) {
	sys := t.TempDir()
	disk := filepath.Join(sys, "devices", "sda")
	for path, text := range map[string]string{"dev": "8:0\n", "sda1/dev": "8:1\n", "sda1/partition": "1\n"} {
		path = filepath.Join(disk, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"8:0": disk, "8:1": filepath.Join(disk, "sda1")} {
		if err := os.Symlink(to, filepath.Join(sys, name)); err != nil {
			t.Fatal(err)
		}
	}
	for minor := range uint32(2) {
		if got, err := deviceOf(sys, 8, minor); err != nil || got != "8:0" {
			t.Errorf("8:%d is on %q, %v", minor, got, err)
		}
	}
	if _, err := deviceOf(sys, 0, 31); !errors.Is(err, ErrUnsupported) {
		t.Errorf("of no device: %v", err)
	}
}

func TestProbeSaysWhatIsMissing(t *testing.T) {
	f := Probe()
	if f.Err == nil && f.Dir == "" {
		t.Errorf("%+v", f)
	}
	if left, _ := filepath.Glob(filepath.Join(f.Dir, "forkd-probe-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	t.Logf("%+v", f)
}
