package client

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/failpoint/failpointtest"
	vmclient "github.com/forkd/forkd/internal/vm/vmctl/client"
	vmwire "github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// conductor returns the test's end of failpoints. A process reads their variable only once, so the
// test runs in its own process.
func conductor(t *testing.T) *failpointtest.Conductor {
	t.Helper()
	if path := os.Getenv(failpoint.Variable); path != "" {
		c, err := failpointtest.Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	dir, err := os.MkdirTemp("", "jail")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command(program, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), failpoint.Variable+"="+filepath.Join(dir, "points"))
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
	return nil
}

// If forkd-spawn is killed at any step of starting a VMM, the VMM ends, and another forkd-spawn
// starts the next.
func TestKilledAtEachOfItsSteps(t *testing.T) {
	points := conductor(t)
	if points == nil {
		return
	}
	s := openSpawner(t, false)
	for _, step := range []failpoint.Step{failpoint.SpawnAsked, failpoint.SpawnForked, failpoint.SpawnExecuted} {
		old := mustLaunch(t, s)
		points.Arm(step)
		ended := make(chan error, 1)
		var in *inside
		go func() {
			var err error
			in, err = launch(t, s)
			ended <- err
		}()
		eventually(t, "forkd-spawn at "+string(step), func() bool { return points.Reached(step) })
		if err := unix.Kill(s.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		points.Disarm(step)
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "forkd-spawn has ended") {
			t.Errorf("%s: the start says %v", step, err)
		}
		in.conn.Close() // like the daemon then
		eventually(t, "no VMM but the old one", func() bool { return len(inmates(t)) == 1 })
		next := mustLaunch(t, s) // its end may not be known yet
		for _, in := range []*inside{old, next} {
			in.ask(t, order{Only: nothing})
			_ = signalKill(in.PIDFD)
			in.Ended()
		}
		eventually(t, "no VMM", func() bool { return len(inmates(t)) == 0 })
	}
}

// inmates returns the pids of this test's VMMs, including future ones.
func inmates(t *testing.T) (pids []string) {
	t.Helper()
	for _, e := range must(os.ReadDir("/proc")) {
		b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil || !strings.HasPrefix(string(b), vmwire.Program+"\x00") && !strings.Contains(string(b), "\x00init\x00") {
			continue
		}
		exe, _ := os.Readlink("/proc/" + e.Name() + "/exe")
		if exe == must(os.Executable()) || strings.HasPrefix(exe, "/memfd:stage") {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// A process in the jail, with all filters on, reports its steps through its inherited connection.
func TestStepsInAJailAreTold(t *testing.T) {
	points := conductor(t)
	if points == nil {
		return
	}
	const step = "inmate.step"
	s := openSpawner(t, os.Geteuid() == 0)
	connection, err := failpoint.Connect()
	if err != nil || connection == nil {
		t.Fatal(connection, err)
	}
	defer connection.Close()
	in, err := launchWith(t, s, vmclient.Launch{Start: vmwire.Start{Seccomp: seccomp.On}, Failpoints: connection})
	if err != nil {
		t.Fatal(err)
	}
	in.ask(t, order{Only: nothing, Filter: filterVM}) // it is on from now on
	points.Arm(step)
	in.tell(t, order{Only: nothing, Step: step})
	eventually(t, "inmate at its step", func() bool { return points.Reached(step) })
	points.Disarm(step)
	in.answer(t)
}
