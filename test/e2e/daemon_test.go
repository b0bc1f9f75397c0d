package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/kvmtest"
)

// daemon is a `forkd serve` with directories of its own.
type daemon struct {
	t         *testing.T // the running test
	dir, bin  string
	data, run string
	flags     []string // more flags for serve
	c         *client.Client

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is reaped
}

// newDaemon prepares a daemon in dir. forkd and its VMM are there side by side,
// under a path that is this daemon's alone: so its processes can be told from others.
func newDaemon(t *testing.T, dir string) *daemon {
	t.Helper()
	d := &daemon{t: t, dir: dir, bin: filepath.Join(dir, "bin"), data: filepath.Join(dir, "data"), run: filepath.Join(dir, "run")}
	if err := os.MkdirAll(d.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"forkd", "forkd-vmm"} {
		if err := link(kvmtest.Fixture(t, name), filepath.Join(d.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(client.Options{URL: d.url()})
	if err != nil {
		t.Fatal(err)
	}
	d.c = c
	return d
}

// secondDaemon is one for tests whose daemon must be special. It ends with the test,
// which fails if anything is left behind.
func secondDaemon(t *testing.T, flags ...string) *daemon {
	t.Helper()
	kvmtest.Require(t)
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, dir)
	d.flags = flags
	t.Cleanup(func() {
		if err := d.finish(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return d
}

func (d *daemon) url() string     { return "unix://" + filepath.Join(d.run, "forkd.sock") }
func (d *daemon) forkd() string   { return filepath.Join(d.bin, "forkd") }
func (d *daemon) vmm() string     { return filepath.Join(d.bin, "forkd-vmm") }
func (d *daemon) images() string  { return filepath.Join(d.data, "images") }
func (d *daemon) store() string   { return filepath.Join(d.data, "snapshots") }
func (d *daemon) owns() string    { return filepath.Join(d.data, "own") } // the files of sandboxes' disks
func (d *daemon) logFile() string { return filepath.Join(d.dir, "daemon.log") }
func (d *daemon) pid() int        { return d.cmd.Process.Pid }
func (d *daemon) running() bool   { return d.cmd != nil }

// start runs the daemon and waits until it answers.
func (d *daemon) start() {
	d.t.Helper()
	log, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	args := append([]string{"serve", "--listen", d.url(), "--data", d.data, "--run", d.run}, d.flags...)
	cmd := exec.Command(d.forkd(), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.cmd, d.ended = cmd, make(chan struct{})
	go func() {
		defer close(d.ended)
		_ = cmd.Wait()
	}()
	eventually(d.t, "an answer of the daemon", func() bool {
		select {
		case <-d.ended:
			d.t.Fatalf("the daemon ended: %s\n%s", cmd.ProcessState, d.log())
		default:
		}
		return d.c.Health(context.Background()) == nil
	})
}

// end sends a signal and waits for the process.
func (d *daemon) end(sig syscall.Signal) *os.ProcessState {
	_ = d.cmd.Process.Signal(sig)
	<-d.ended
	state := d.cmd.ProcessState
	d.cmd = nil
	_ = d.c.Close() // idle connections lead nowhere
	return state
}

// finish stops the daemon for good and tells what it leaves behind that it
// should not.
func (d *daemon) finish() error {
	if !d.running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := d.c.ListSandboxes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, sb := range list {
		if err := d.c.Kill(ctx, sb.ID); err != nil && !client.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	if state := d.end(syscall.SIGTERM); state.ExitCode() != 0 {
		errs = append(errs, fmt.Errorf("the daemon ended with %s", state))
	}
	if left := d.vmDirs(); len(left) > 0 {
		errs = append(errs, fmt.Errorf("the run directory still holds %q", left))
	}
	if pids := d.processes(); len(pids) > 0 {
		errs = append(errs, fmt.Errorf("VMM processes %v still run", pids))
	}
	for _, word := range []string{"panic:", "DATA RACE"} {
		if log := d.log(); strings.Contains(log, word) {
			errs = append(errs, fmt.Errorf("the daemon's log has %q:\n%s", word, log))
		}
	}
	return errors.Join(errs...)
}

// log is the end of what the daemon logged.
func (d *daemon) log() string {
	b, _ := os.ReadFile(d.logFile())
	return string(b[max(0, len(b)-16<<10):])
}

// vmDirs are the folders of VMs in the run directory.
func (d *daemon) vmDirs() []string { return names(filepath.Join(d.run, "vm")) }

func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// processes are the pids of all VMMs of this daemon, zombies left out.
func (d *daemon) processes() []int {
	var pids []int
	for _, name := range names("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if exe, err := os.Readlink("/proc/" + name + "/exe"); err == nil && exe == d.vmm() {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

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
	return []string{"FORKD_URL=" + d.url(), "HOME=" + d.dir, "TMPDIR=" + os.TempDir(), "PATH=" + d.bin + ":" + os.Getenv("PATH"), "TERM=dumb"}
}
