package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// beDaemon acts as a daemon that limits itself to 64 MiB and then needs 256.
func beDaemon(name string) {
	r, err := Open(name)
	if err == nil {
		_, err = r.LimitSelf(64 << 20)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	b := make([]byte, 256<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
}

func TestADaemonThatNeedsTooMuchMemoryEndsAlone(t *testing.T) {
	r := openRoot(t, Memory)
	if !r.place.root {
		t.Log("the daemon's group is the delegated leaf")
	}
	sibling := mustNew(t, r, Tree{}, Limits{Memory: 64 << 20, Whole: true})
	vm, said := run(t, sibling, "8")
	<-said
	daemon := exec.Command("/proc/self/exe")
	daemon.Env = append(os.Environ(), role+"=daemon:"+filepath.Base(r.dir))
	out, err := daemon.CombinedOutput()
	t.Cleanup(func() { _ = os.Remove(r.own().group.dir()) })
	if status, ok := daemon.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("it ended with %v: %s", err, out)
	}
	if err := vm.Process.Signal(syscall.Signal(0)); err != nil || killedBy(sibling) != NotKilled {
		t.Errorf("a VM beside it: %v, %v", err, killedBy(sibling))
	}
	if n := r.own().OOMKills(); n != 1 {
		t.Errorf("%d processes of the daemon's group were killed, want 1", n)
	}
}

func TestALaterDaemonReplacesTheLimit(t *testing.T) {
	r := openRoot(t, Memory)
	for _, limit := range []int64{1 << 30, 0} {
		own, err := r.LimitSelf(limit)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(own.group.dir(), "memory.max"))
		want := noLimit
		if limit > 0 {
			want = fmt.Sprint(limit)
		}
		if got := strings.TrimSpace(string(b)); err != nil || got != want {
			t.Errorf("memory.max is %q, %v, want %s", got, err, want)
		}
		if procs, _ := os.ReadFile(filepath.Join(own.group.dir(), "cgroup.procs")); !strings.Contains(
			string(procs), fmt.Sprintln(os.Getpid())) {
			t.Errorf("this process is not in the group: %q", procs)
		}
		own.Close()
	}
}

func TestTheLimitOfADaemonNeedsTheController(t *testing.T) {
	r := openRoot(t)
	r.have = nil
	if _, err := r.LimitSelf(1 << 30); err == nil {
		t.Error("a limit without the memory controller is no error")
	}
}
