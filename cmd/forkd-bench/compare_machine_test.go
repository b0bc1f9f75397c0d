package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAVisitLeavesOnlyItsOwnDirectories(t *testing.T) {
	for _, v := range []visit{
		{}, {dir: "/"}, {dir: "/var/lib/forkd"}, {dir: "/var/lib/forkd/.peers-"}, {dir: "/usr/.compare-1/.."},
		{dir: "/var/lib/forkd/.peers-7", bin: "/usr"}, {bin: "relative"},
	} {
		if dirs, err := v.dirs(); err == nil {
			t.Errorf("%+v removes %v", v, dirs)
		}
	}
	for _, v := range []visit{{dir: "/var/lib/forkd/.peers-7"}, {dir: "/var/lib/forkd/.compare-7", bin: "/usr/.compare-7"}} {
		dirs, err := v.dirs()
		if err != nil || strings.Join(dirs, " ") != strings.TrimSpace(v.dir+" "+v.bin) {
			t.Errorf("%+v removes %v, %v", v, dirs, err)
		}
	}
}

// TestLeavingKillsNoOtherProcess runs the script on this host. With an empty argument, an earlier
// script killed every process of the machine.
func TestLeavingKillsNoOtherProcess(t *testing.T) {
	own := filepath.Join(t.TempDir(), ".compare-1")
	program := filepath.Join(own, "sleep")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(sleep)
	if err == nil {
		err = os.WriteFile(program, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	stranger := start(t, sleep)
	for _, args := range [][]string{{}, {""}, {own, ""}, {"/"}, {"", own}, {"/usr"}} {
		if err := leaveHere(args...); err == nil {
			t.Errorf("%q: no error", args)
		}
		if _, err := os.Stat(program); err != nil {
			t.Fatalf("%q removes it: %v", args, err)
		}
	}
	mine := start(t, program)
	if err := leaveHere(own); err != nil {
		t.Fatal(err)
	}
	if err := mine.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("its own process ended with %v", err)
	}
	if _, err := os.Stat(own); err == nil {
		t.Error("its directory is left")
	}
	if err := stranger.Process.Kill(); err != nil {
		t.Errorf("another program's process has ended: %v", err)
	}
}

func leaveHere(args ...string) error {
	return exec.Command("/bin/sh", append([]string{"-c", leaveScript, "sh"}, args...)...).Run()
}

// start runs a program that sleeps until the test ends.
func start(t *testing.T, program string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}
