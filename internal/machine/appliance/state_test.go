package appliance

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/sys/hostproc"
)

// testMachine returns a machine in a directory of the test.
func testMachine(t *testing.T) *Appliance {
	t.Helper()
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	m, err := Open("unit")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.prepare(); err != nil {
		t.Fatal(err)
	}
	return m
}

// sleeper starts a live process to use as QEMU.
func sleeper(t *testing.T) (state, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // a second wait only returns an error
	start, err := hostproc.StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return state{PID: cmd.Process.Pid, StartTime: start, BootID: hostproc.BootID()}, cmd
}

func TestStateTellsALiveMachineFromAStaleOne(t *testing.T) {
	m := testMachine(t)
	if _, err := m.running(); !errors.Is(err, ErrNotRunning) {
		t.Fatalf("without a state: %v", err)
	}
	live, cmd := sleeper(t)
	otherBoot, reused := live, live
	otherBoot.BootID = "another boot"
	reused.StartTime++
	for name, s := range map[string]state{"a state of another boot": otherBoot, "a PID that is used again": reused} {
		if err := m.writeState(s); err != nil {
			t.Fatal(err)
		}
		if _, err := m.running(); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := m.writeState(live); err != nil {
		t.Fatal(err)
	}
	if got, err := m.running(); err != nil || got.PID != live.PID {
		t.Fatalf("a live process: %+v, %v", got, err)
	}
	// A zombie is dead, although its PID is taken.
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, err := m.running(); errors.Is(err, ErrNotRunning) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a killed process still counts as running")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestDamagedStateIsAnError(t *testing.T) {
	m := testMachine(t)
	if err := os.WriteFile(m.path(stateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.running(); err == nil || errors.Is(err, ErrNotRunning) {
		t.Errorf("error is %v", err)
	}
}

func TestTokenIsPrivateAndStays(t *testing.T) {
	m := testMachine(t)
	first, err := m.Token()
	if err != nil || len(first) != 64 {
		t.Fatalf("token %q, %v", first, err)
	}
	if err := m.prepare(); err != nil {
		t.Fatal(err)
	}
	if again, _ := m.Token(); again != first {
		t.Error("the token changed")
	}
	st, err := os.Stat(m.path(tokenFile))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v, %v", st.Mode(), err)
	}
}

func TestNamesThatCouldLeaveTheDirectoryAreRefused(t *testing.T) {
	for _, name := range []string{"..", "a/b", "A", "-x", ".hidden", strings.Repeat("a", 33)} {
		if m, err := Open(name); err == nil {
			t.Errorf("%q gives %s", name, m.Dir)
		}
	}
}

func TestLockKeepsOthersOut(t *testing.T) {
	m := testMachine(t)
	unlock, err := m.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := m.lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("second lock: %v", err)
	}
	unlock()
	unlock, err = m.lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestRotatedLogKeepsItsInode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(path)
	if err := rotateLog(path, 4); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) || after.Size() != 0 {
		t.Errorf("QEMU would go on writing to the old file: %v, %v", after, err)
	}
	if old, _ := os.ReadFile(path + ".1"); string(old) != "one\ntwo\n" {
		t.Errorf("kept %q", old)
	}
	if err := rotateLog(filepath.Join(t.TempDir(), "none"), 0); err != nil {
		t.Errorf("no log: %v", err)
	}
}

func TestDeathReportShowsTheConsole(t *testing.T) {
	m := testMachine(t)
	if err := os.WriteFile(m.path(consoleFile), []byte("first\r\nKernel panic - not syncing\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := m.deathReport(errDied)
	if !errors.Is(err, errDied) || !strings.Contains(err.Error(), "Kernel panic") {
		t.Errorf("report is %v", err)
	}
}

// QEMU may end between the check of the state and the signal, and its PID may be reused.
func TestAnotherProcessOfThatNumberIsNotKilled(t *testing.T) {
	m := testMachine(t)
	other, cmd := sleeper(t)
	stale := other
	stale.StartTime++
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // there is no answer anyway
	if err := m.stopLocked(ctx, stale); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := kill(other.PID, func() bool { return false }, time.Minute); err != nil {
		t.Errorf("kill: %v", err)
	}
	if !other.alive() {
		t.Fatal("a process that took over a PID was killed")
	}
	if err := m.stopLocked(ctx, other); err != nil {
		t.Errorf("stop what is meant: %v", err)
	}
	<-ended
}
