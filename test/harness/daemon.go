package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// Daemon is a `forkd serve` with directories of its own. Fields may be changed
// until Start.
type Daemon struct {
	Dir, Bin  string
	Data, Run string
	Flags     []string // more flags for serve
	Env       []string // more variables for it
	// NoOracle leaves its snapshots uncompared, as FORKD_TEST_ORACLE=0 does: where branches are many
	// and large, that takes most of a suite's time. In a soak all are compared.
	NoOracle bool
	// Measured leaves them uncompared in a soak, too: digests of all pages, which the oracle has the daemon
	// hold, and the pauses that it makes longer would be taken for what the test looks at.
	Measured bool
	// Mismatches is how many snapshots a test has made the oracle find that differ from their sources.
	Mismatches int
	// User is whom it runs as; nil: as the test.
	User   *syscall.Credential
	Client *client.Client

	fixtures string // the folder that the images' kernels and roots are in

	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process is reaped
	starts int
	kills  atomic.Int64 // by Kill, KillProcess and End with SIGKILL
}

// New prepares a daemon in dir. forkd and its VMM are there side by side, under
// a path that is this daemon's alone: so its processes can be told from others.
func New(t testing.TB, dir string) (*Daemon, error) {
	t.Helper()
	d := &Daemon{Dir: dir, Bin: filepath.Join(dir, "bin"), Data: filepath.Join(dir, "data"),
		Run: filepath.Join(dir, "run")}
	if err := os.MkdirAll(d.Bin, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{"forkd", "forkd-vmm", "forkd-spawn"} {
		from := kvmtest.Fixture(t, name)
		d.fixtures = filepath.Dir(from)
		if err := Link(from, filepath.Join(d.Bin, name)); err != nil {
			return nil, err
		}
	}
	var err error
	d.Client, err = client.New(client.Options{URL: d.URL()})
	return d, err
}

// jailVariable is what VMs of all daemons have of a jail, as `forkd serve --jail` has it. In the machine
// the runner says strict: it can do all, and a part that went missing is to be seen.
const jailVariable = "FORKD_TEST_JAIL"

// jailFlags say so; a test's own flags come behind them.
func jailFlags() []string {
	if mode := os.Getenv(jailVariable); mode != "" {
		return []string{"--jail", mode}
	}
	return nil
}

// WithNet has it find forkd-net, which its sandboxes have no network without.
func (d *Daemon) WithNet(t testing.TB) error {
	t.Helper()
	return Link(kvmtest.Fixture(t, "forkd-net"), d.Net())
}

// URL is where it serves.
func (d *Daemon) URL() string { return "unix://" + filepath.Join(d.Run, "forkd.sock") }

// Forkd, VMM, Net and Spawn are its programs' paths.
func (d *Daemon) Forkd() string { return filepath.Join(d.Bin, "forkd") }
func (d *Daemon) VMM() string   { return filepath.Join(d.Bin, "forkd-vmm") }
func (d *Daemon) Net() string   { return filepath.Join(d.Bin, "forkd-net") }
func (d *Daemon) Spawn() string { return filepath.Join(d.Bin, "forkd-spawn") }

// Images is its store of images.
func (d *Daemon) Images() string { return filepath.Join(d.Data, "images") }

// PID is that of the process; it must be running.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Running tells whether it was started and not ended since.
func (d *Daemon) Running() bool { return d.cmd != nil }

// patience is for what must happen at some time: slow machines are not wrong.
const patience = time.Minute

// Start runs the daemon and waits until it answers.
func (d *Daemon) Start() error {
	if err := errors.Join(d.become(), d.give()); err != nil {
		return err
	}
	log, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{"serve", "--listen", d.URL(), "--data", d.Data, "--run", d.Run,
		"--guest-files", d.Dir, "--guest-files", d.fixtures,
		"--identity-timeout", (5 * patience).String()}, // a slow machine is not wrong
		slices.Concat(jailFlags(), d.Flags)...)
	cmd := exec.Command(d.Forkd(), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if d.User != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.User}
	}
	cmd.Env = append(append(os.Environ(), d.oracleEnv()), d.Env...)
	if err := cmd.Start(); err != nil {
		return err
	}
	d.starts++
	d.cmd, d.ended = cmd, make(chan struct{})
	go func() {
		defer close(d.ended)
		_ = cmd.Wait()
	}()
	for end := time.Now().Add(patience); d.Client.Health(context.Background()) != nil; time.Sleep(20 * time.Millisecond) {
		select {
		case <-d.ended:
			d.cmd = nil
			return fmt.Errorf("the daemon ended: %s\n%s", cmd.ProcessState, d.Log())
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("no answer of the daemon within %s\n%s", patience, d.Log())
		}
	}
	return nil
}

// End sends a signal and waits for the process.
func (d *Daemon) End(sig syscall.Signal) *os.ProcessState {
	if sig == syscall.SIGKILL {
		d.kills.Add(1)
	}
	_ = d.cmd.Process.Signal(sig)
	<-d.ended
	state := d.cmd.ProcessState
	d.cmd = nil
	_ = d.Client.Close() // idle connections lead nowhere
	return state
}

// Kill ends a sandbox.
func (d *Daemon) Kill(id string) error {
	d.kills.Add(1)
	return d.Client.Kill(context.Background(), id)
}

// KillProcess ends a VMM by kill -9; false: there is none.
func (d *Daemon) KillProcess(pid int) bool {
	d.kills.Add(1)
	return syscall.Kill(pid, syscall.SIGKILL) == nil
}

// Finish stops the daemon for good and tells what it leaves behind that it
// should not.
func (d *Daemon) Finish() error {
	if !d.Running() {
		return d.checkOracle(d.Account())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := d.Client.ListSandboxes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, sb := range list {
		if err := d.Kill(sb.ID); err != nil && !client.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	if state := d.End(syscall.SIGTERM); state.ExitCode() != 0 {
		errs = append(errs, fmt.Errorf("the daemon ended with %s", state))
	}
	if left := d.VMDirs(); len(left) > 0 {
		errs = append(errs, fmt.Errorf("the run directory still holds %q", left))
	}
	if pids := d.Processes(); len(pids) > 0 {
		errs = append(errs, fmt.Errorf("VMM processes %v still run", pids))
	}
	log := d.wholeLog()
	for _, word := range []string{"panic:", "DATA RACE"} {
		if strings.Contains(log, word) {
			errs = append(errs, fmt.Errorf("the daemon's log has %q:\n%s", word, d.Log()))
		}
	}
	errs = append(errs, d.checkOracle(accountOf(log)))
	return errors.Join(errs...)
}

func (d *Daemon) logFile() string { return filepath.Join(d.Dir, "daemon.log") }

// Log is the end of what the daemon logged.
func (d *Daemon) Log() string {
	log := d.wholeLog()
	return log[max(0, len(log)-16<<10):]
}

func (d *Daemon) wholeLog() string {
	b, _ := os.ReadFile(d.logFile())
	return string(b)
}

// VMDirs are the folders of VMs in the run directory.
func (d *Daemon) VMDirs() []string { return Names(filepath.Join(d.Run, "vm")) }

// Processes are the pids of all VMMs of this daemon, zombies left out.
func (d *Daemon) Processes() []int { return running(d.VMM()) }

// NetProcesses are the pids of its forkd-net, which outlives it; one at most, unless one ends just now.
// The child that reads resolv.conf for it is none, and ends with it.
func (d *Daemon) NetProcesses() []int {
	all := running(d.Net())
	return slices.DeleteFunc(slices.Clone(all), func(pid int) bool { return slices.Contains(all, parent(pid)) })
}

// parent is 0 of a process that is no more.
func parent(pid int) (of int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if n, is := strings.CutPrefix(line, "PPid:"); is {
			of, _ = strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return of
}

// SpawnProcesses are the pids of forkd-spawn, and of processes that have yet to become VMMs.
func (d *Daemon) SpawnProcesses() []int { return running(d.Spawn()) }

// running are the pids of processes of a program.
func running(program string) []int {
	var pids []int
	for _, name := range Names("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if exe, err := os.Readlink("/proc/" + name + "/exe"); err == nil && exe == program {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
