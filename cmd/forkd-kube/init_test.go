package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemon is a script in the place of a daemon. Its runs are counted in the file starts.
const daemon = `#!/bin/bash
echo run >> starts
n=$(wc -l < starts)
echo start $n $$
notify() { printf "$1" | python3 -c 'import os,socket,sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect(os.environ["NOTIFY_SOCKET"]); s.send(sys.stdin.buffer.read())'; }
`

// supervised is a running forkd-kube init.
type supervised struct {
	*exec.Cmd
	dir   string
	lines chan string
}

// supervise runs a script under forkd-kube init.
func supervise(t *testing.T, script string, args ...string) *supervised {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "daemon")
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &supervised{Cmd: exec.Command(built, append(append([]string{"init"}, args...), "--", file)...), dir: dir,
		lines: make(chan string, 100)}
	s.Dir, s.Stderr = dir, os.Stderr
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Process.Kill() })
	go func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			s.lines <- sc.Text()
		}
	}()
	return s
}

// next waits for a line of output with the prefix, and returns its rest.
func (s *supervised) next(t *testing.T, prefix string) string {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case line := <-s.lines:
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return strings.TrimSpace(rest)
			}
		case <-limit:
			t.Fatalf("no line %q", prefix)
		}
	}
}

func (s *supervised) pid(t *testing.T, prefix string) int {
	t.Helper()
	pid, err := strconv.Atoi(s.next(t, prefix))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// code waits for the end.
func (s *supervised) code(t *testing.T) int {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Wait() }()
	select {
	case err := <-done:
		if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
		return s.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		t.Fatal("forkd-kube init does not end")
		return 0
	}
}

// ready is a daemon in Python, so that its reports have its own PID. It has a child that outlives it, like a VM.
const ready = `#!/usr/bin/python3 -u
import os, signal, socket, subprocess, sys, time
with open("starts", "a+") as f:
    f.write("run\n"); f.seek(0); n = len(f.readlines())
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect(os.environ["NOTIFY_SOCKET"])
def stop(*_):
    print("stopped", n); sys.exit(0)
signal.signal(signal.SIGTERM, stop)
assert int(os.environ["WATCHDOG_USEC"]) > 0
if n == 1:
    vm = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
    print("vm", vm.pid)
s.send(b"READY=1")
print("start%d %d" % (n, os.getpid()))
while not os.path.exists("hang%d" % n):
    s.send(b"WATCHDOG=1"); time.sleep(0.1)
print("hangs")
time.sleep(1000)
`

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestVMsOutliveTheDaemonInItsContainer(t *testing.T) {
	s := supervise(t, ready, "--watchdog", "2s")
	vm := s.pid(t, "vm")
	defer syscall.Kill(vm, syscall.SIGKILL)
	first := s.pid(t, "start1")
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := s.pid(t, "start2")
	if alive(first) || !alive(vm) { // a zombie is alive, too
		t.Errorf("the killed daemon is there: %v; its VM is: %v", alive(first), alive(vm))
	}

	if err := s.Process.Signal(syscall.SIGHUP); err != nil { // a restart, without a pause
		t.Fatal(err)
	}
	s.next(t, "stopped 2")
	third := s.pid(t, "start3")

	if err := os.WriteFile(filepath.Join(s.dir, "hang3"), nil, 0o600); err != nil { // the watchdog
		t.Fatal(err)
	}
	s.next(t, "hangs")
	fourth := s.pid(t, "start4")
	if alive(second) || alive(third) || !alive(fourth) || !alive(vm) {
		t.Error("the wrong processes are there")
	}

	if err := syscall.Kill(vm, syscall.SIGKILL); err != nil { // an orphan is reaped
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); alive(vm); time.Sleep(10 * time.Millisecond) { // elapses: polls a process
		if time.Now().After(until) {
			t.Fatal("the orphan is a zombie")
		}
	}
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.next(t, "stopped 4")
	if code := s.code(t); code != 0 || alive(fourth) {
		t.Errorf("exit code %d, the daemon is there: %v", code, alive(fourth))
	}
}

func TestADaemonThatCannotStart(t *testing.T) {
	for _, code := range []int{2, 3} {
		s := supervise(t, daemon+"exit "+strconv.Itoa(code))
		if got := s.code(t); got != code {
			t.Errorf("exit code %d, want %d", got, code)
		}
	}
	// Another code is tried again.
	s := supervise(t, daemon+`[ $n = 1 ] && exit 1; exec sleep 1000`)
	s.next(t, "start 2")
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := s.code(t); got != 0 {
		t.Errorf("exit code %d after SIGTERM", got)
	}
}

func TestADaemonThatDoesNotListen(t *testing.T) {
	// It never becomes ready: reports of other processes do not count. It ignores SIGTERM.
	deaf := strings.Replace(daemon, "\n", "\ntrap '' TERM\n", 1)
	s := supervise(t, deaf+`notify 'READY=1\nWATCHDOG=1'; while :; do sleep 0.1; done`,
		"--start-timeout", "2s", "--grace", "1s")
	s.next(t, "start 1")
	s.next(t, "start 2")
	began := time.Now()
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.code(t); code != 0 || time.Since(began) < time.Second {
		t.Errorf("exit code %d after %s", code, time.Since(began))
	}
}

func TestInitNeedsAProgram(t *testing.T) {
	for _, args := range [][]string{{"init"}, {"init", "--", "/missing/forkd"}, {"init", "--watchdog", "1ms", "--", "true"}} {
		out, err := exec.Command(built, args...).CombinedOutput()
		if err == nil {
			t.Errorf("%v: %s", args, out)
		}
	}
}
