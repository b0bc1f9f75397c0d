package reap

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

const childEnv = "FORKD_REAP_TEST"

// The reaper of orphans takes every child of its process. So the test runs in a separate process:
// this test binary, started again.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := withOrphans(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runReaper(r *Reaper) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	return func() { cancel(); wg.Wait() }
}

func sh(script string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) }

// withOrphans runs many own children among many orphans: no status is lost and
// no zombie stays.
func withOrphans() error {
	r := New(true)
	defer runReaper(r)()
	var all []*Child
	for i := range 40 {
		// Each leaves an orphan that ends at about the same time.
		c, err := r.Start(sh(fmt.Sprintf("(sleep 0.1 &) ; sleep 0.1; exit %d", i)))
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	for i, c := range all {
		select {
		case <-c.Done():
		case <-time.After(20 * time.Second):
			return fmt.Errorf("child %d was never reaped", i)
		}
		if got := c.Status().ExitStatus(); got != i {
			return fmt.Errorf("child %d ended with %d", i, got)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
		if err != nil || strings.TrimSpace(string(b)) == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("children stay: %s", b)
		}
	}
}

func TestOrphansAreReapedAndNoStatusIsStolen(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestOthersChildrenAreLeftAlone(t *testing.T) {
	r := New(false)
	defer runReaper(r)()
	c, err := r.Start(sh("exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sh("exit 0").Run(); err != nil {
		t.Errorf("os/exec lost its child: %v", err)
	}
	<-c.Done()
	if c.Status().ExitStatus() != 3 {
		t.Errorf("got %d", c.Status().ExitStatus())
	}
	if err := c.Signal(9); err != os.ErrProcessDone {
		t.Errorf("got %v", err)
	}
}

func TestStartOfWhatIsMissing(t *testing.T) {
	r := New(false)
	if _, err := r.Start(exec.Command("/no/such/program")); err == nil {
		t.Error("started")
	}
}

// The memory use of processes and of their own children is reported when they have ended.
func TestTellsHowMuchMemoryWasUsed(t *testing.T) {
	had := make(chan int64, 16)
	r := New(false)
	r.Ended = func(n int64) { had <- n }
	defer runReaper(r)()
	for _, script := range []string{"exit 0", "x=$(head -c 20000000 /dev/zero | tr '\\0' x); exit ${#y}"} {
		if _, err := r.Start(sh(script)); err != nil {
			t.Fatal(err)
		}
		n := <-had
		if large := len(script) > 10; n <= 0 || large && n < 20_000_000 {
			t.Errorf("%q had %d bytes", script, n)
		}
	}
}
