package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// daemon is a harness.Daemon, used by one test at a time.
type daemon struct {
	*harness.Daemon
	t *testing.T // the running test
	c *client.Client
}

func newDaemon(t *testing.T, dir string) *daemon {
	t.Helper()
	h, err := harness.New(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	h.NoOracle = true // test/oracle runs the oracle on these kinds of branches
	return &daemon{Daemon: h, t: t, c: h.Client}
}

// secondDaemon returns a daemon for tests with special needs. The daemon is stopped at the end of
// the test, which fails if there are leftovers.
func secondDaemon(t *testing.T, flags ...string) *daemon {
	t.Helper()
	kvmtest.Require(t)
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, dir)
	d.Flags = flags
	t.Cleanup(func() {
		if err := d.Finish(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return d
}

func (d *daemon) url() string      { return d.URL() }
func (d *daemon) forkd() string    { return d.Forkd() }
func (d *daemon) images() string   { return d.Images() }
func (d *daemon) store() string    { return filepath.Join(d.Data, "snapshots") }
func (d *daemon) owns() string     { return filepath.Join(d.Data, "own") } // files of sandboxes' disks
func (d *daemon) pid() int         { return d.PID() }
func (d *daemon) vmDirs() []string { return d.VMDirs() }
func (d *daemon) processes() []int { return d.Processes() }

func names(dir string) []string { return harness.Names(dir) }

// start runs the daemon and waits until it answers.
func (d *daemon) start() {
	d.t.Helper()
	if err := d.Start(); err != nil {
		d.t.Fatal(err)
	}
}

// end sends a signal and waits for the process.
func (d *daemon) end(sig syscall.Signal) *os.ProcessState { return d.End(sig) }

// cli runs the command line against the daemon.
func (d *daemon) cli(args ...string) (code int, stdout, stderr string) {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), d.forkd(), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = d.env()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		d.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func (d *daemon) env() []string {
	return []string{"FORKD_URL=" + d.url(), "HOME=" + d.Dir, "TMPDIR=" + os.TempDir(), "PATH=" + d.Bin + ":" + os.Getenv("PATH"), "TERM=dumb"}
}
