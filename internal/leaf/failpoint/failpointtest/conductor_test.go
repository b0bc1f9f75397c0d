package failpointtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// TestMain also runs the processes of the tests: one that opens the socket itself, like the daemon, and one
// started by it that inherits its connection, like a VMM.
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case "daemon":
		os.Exit(daemon())
	case "vmm":
		failpoint.Here(failpoint.CaptureBegun)
		failpoint.Here(failpoint.CaptureRound)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const fd = 5

func daemon() int {
	failpoint.Here(failpoint.BranchReserved)
	f, err := failpoint.Connect()
	if err != nil || f == nil {
		return 2
	}
	p, err := os.StartProcess("/proc/self/exe", []string{"vmm"}, &os.ProcAttr{
		Env: failpoint.Environ(fd), Files: []*os.File{nil, os.Stdout, os.Stderr, nil, nil, f},
	})
	f.Close()
	if err != nil {
		return 3
	}
	if _, err := p.Wait(); err != nil {
		return 4
	}
	failpoint.Here(failpoint.BranchDone)
	return 0
}

func listen(t *testing.T) *Conductor {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c, err := Listen(filepath.Join(dir, "points"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestProcessesStandAtTheStepThatIsArmed(t *testing.T) {
	all := []failpoint.Step{failpoint.BranchReserved, failpoint.CaptureBegun, failpoint.CaptureRound, failpoint.BranchDone}
	for i, s := range all {
		t.Run(string(s), func(t *testing.T) {
			c := listen(t)
			c.Arm(s)
			var said bytes.Buffer
			p := exec.Command("/proc/self/exe")
			p.Args, p.Env, p.Stderr = []string{"daemon"}, c.Environ(), &said
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(time.Minute); !c.Reached(s); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("nobody came to %s: %s", s, said.String())
				}
			}
			if got := c.Passed(); !slices.Equal(got, all[:i+1]) {
				t.Errorf("while one stands at %s, %v were passed", s, got)
			}
			c.Disarm(s)
			if err := p.Wait(); err != nil {
				t.Fatalf("%v: %s", err, said.String())
			}
			if got := c.Passed(); !slices.Equal(got, all[i+1:]) {
				t.Errorf("then %v", got)
			}
		})
	}
}

// A process killed at a step does not block the conductor.
func TestAProcessThatIsKilledAtItsStep(t *testing.T) {
	c := listen(t)
	c.Arm(failpoint.BranchReserved)
	p := exec.Command("/proc/self/exe")
	p.Args, p.Env = []string{"daemon"}, c.Environ()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	for !c.Reached(failpoint.BranchReserved) {
		time.Sleep(time.Millisecond)
	}
	p.Process.Kill()
	p.Wait()
}

func TestAHookMakesAStepFail(t *testing.T) {
	want := errors.New("no more")
	unset := failpoint.Set(func(s failpoint.Step) error {
		if s == failpoint.BranchDone {
			return want
		}
		return nil
	})
	if err := failpoint.At(failpoint.BranchDone); err != want {
		t.Errorf("got %v", err)
	}
	if err := failpoint.At(failpoint.BranchFiles); err != nil {
		t.Errorf("another step: %v", err)
	}
	unset()
	if err := failpoint.At(failpoint.BranchDone); err != nil {
		t.Errorf("without the hook: %v", err)
	}
}
