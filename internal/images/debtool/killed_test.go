package debtool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killedVariable makes the test binary run a tool that does not end by itself.
const killedVariable = "FORKD_TEST_DEBTOOL_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(killedVariable) == "" {
		os.Exit(m.Run())
	}
	c := sh("trap '' TERM; sleep 300 & echo $!; echo $$; wait")
	c.OnLine = func(line string) { fmt.Println(line) }
	_, err := Run(context.Background(), c)
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A tool and its children end when the process that runs it is killed.
func TestAKillEndsTheTools(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), killedVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 2 && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) != 2 {
		t.Fatalf("the tools have the numbers %v", pids)
	}
	err = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		for end := time.Now().Add(10 * time.Second); runs(pid); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				t.Fatalf("process %d still runs", pid)
			}
		}
	}
}

// runs reports whether a process runs: it exists, and has not ended as a zombie.
func runs(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// What a tool leaves behind ends with it, and does not change its result.
func TestNothingOutlivesATool(t *testing.T) {
	out, err := Run(t.Context(), sh("sleep 300 >/dev/null 2>&1 & echo $!; exit 3"))
	var failed *Error
	if out != nil || !errors.As(err, &failed) || len(failed.Tail) != 1 || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("%q, %v", out, err)
	}
	pid, err := strconv.Atoi(failed.Tail[0])
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); runs(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d still runs", pid)
		}
	}
}
