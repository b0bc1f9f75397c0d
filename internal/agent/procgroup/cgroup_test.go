package procgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"
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
