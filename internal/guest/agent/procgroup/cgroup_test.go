package procgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestControlGroups(t *testing.T) {
	g := Open("/sys/fs/cgroup", "forkd-procgroup-test")
	if !g.Confined() {
		t.Skip("there is no writable cgroup2 file system here")
	}
	one, err := g.New()
	if err != nil {
		t.Fatal(err)
	}
	// A child that leaves its session and its parent stays in the group.
	pid, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "setsid sh -c 'sleep 1000 & sleep 1000 &'"}, &os.ProcAttr{Sys: attrs(one)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pid.Wait(); err != nil {
		t.Fatal(err)
	}
	members := func() string {
		b, _ := os.ReadFile(filepath.Join(one.dir, "cgroup.procs"))
		return string(b)
	}
	if members() == "" {
		t.Error("the group lost its members")
	}
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); members() != ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("members survived")
		}
	}
	one.Release()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// TestGroupsOfAnInitAreRemoved makes groups in a group, as an init does. They stay while one has a process.
func TestGroupsOfAnInitAreRemoved(t *testing.T) {
	g := Open("/sys/fs/cgroup", "forkd-procgroup-tree")
	if !g.Confined() {
		t.Skip("there is no writable cgroup2 file system here")
	}
	one, err := g.New()
	if err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(one.dir, "init", "empty")
	if err := os.MkdirAll(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{Sys: attrs(one)})
	if err != nil {
		t.Fatal(err)
	}
	one.Release()
	if _, err := os.Stat(empty); err != nil {
		t.Errorf("a group beside a process is gone: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(one.dir); err == nil {
		t.Error("the groups of the init are left")
	}
}

// TestAnAgentInheritsTheGroupsOfAKilledOne leaves a group with a process, as a killed agent does.
func TestAnAgentInheritsTheGroupsOfAKilledOne(t *testing.T) {
	const name = "forkd-procgroup-inherit"
	killed := Open("/sys/fs/cgroup", name)
	if !killed.Confined() {
		t.Skip("there is no writable cgroup2 file system here")
	}
	one, err := killed.New()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{Sys: attrs(one)})
	if err != nil {
		t.Fatal(err)
	}
	beside := Open("/sys/fs/cgroup", name) // of another running agent
	if err := p.Signal(unix.Signal(0)); err != nil {
		t.Errorf("an agent beside it ended the process: %v", err)
	}
	other, err := beside.New()
	if err != nil {
		t.Fatalf("an agent beside it: %v", err)
	}
	other.Release()
	killed.lock.Close() // the kernel does this when the agent ends

	next := Open("/sys/fs/cgroup", name)
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
	for range 3 {
		g, err := next.New()
		if err != nil {
			t.Fatal(err)
		}
		g.Release()
	}
	one.Release()
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", name)); err == nil {
		t.Error("the groups of the killed agent are left")
	}
}
