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

// Daemon is a `forkd serve` with its own directories. Tests may change fields until Start.
type Daemon struct {
	Dir, Bin  string
	Data, Run string
	Flags     []string // additional flags for serve
	Env       []string // additional environment variables for it
	// NoOracle disables the oracle's comparison of snapshots, like FORKD_TEST_ORACLE=0. The
	// comparison takes most of the time of a suite with many large branches. In a soak all
	// snapshots are compared.
	NoOracle bool
	// Measured disables the comparison in a soak, too. The oracle makes the daemon hold digests of
	// all pages and makes pauses longer, which would distort the test's measurement.
	Measured bool
	// Mismatches is the number of snapshots made different from their sources by the test.
	Mismatches int
	// User is the daemon's user. If nil, it runs as the user of the test.
	User   *syscall.Credential
	Client *client.Client

	// Container starts the daemon as in a container: under forkd-kube init, which is the first process of a PID
	// namespace. PID and End then mean forkd-kube init.
	Container bool

	fixtures string // the folder of the images' kernels and roots

	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process is reaped
	starts int
	kills  atomic.Int64 // ends by Kill, KillProcess, and End with SIGKILL
}

// New prepares a daemon in dir. forkd and its VMM are placed there side by side. The path belongs
// to this daemon only, so it distinguishes the daemon's processes from others.
func New(t testing.TB, dir string) (*Daemon, error) {
	t.Helper()
	d := &Daemon{Dir: dir, Bin: filepath.Join(dir, "bin"), Data: filepath.Join(dir, "data"),
		Run: filepath.Join(dir, "run")}
	if err := os.MkdirAll(d.Bin, 0o755); err != nil {
		return nil, err
	}
	d.fixtures = filepath.Dir(kvmtest.Fixture(t, "forkd"))
	if err := install(t, d.Bin, "", "forkd", "forkd-agent", "forkd-vmm", "forkd-spawn"); err != nil {
		return nil, err
	}
	var err error
	d.Client, err = client.New(client.Options{URL: d.URL()})
	return d, err
}

// Install replaces all programs of the daemon by those of a release such as "0.1.0", or by today's
// for an empty string. Processes that run keep their old program.
func (d *Daemon) Install(t testing.TB, release string) error {
	t.Helper()
	if release != "" {
		release += "-"
	}
	return install(t, d.Bin, release, "forkd", "forkd-vmm", "forkd-spawn", "forkd-net")
}

func install(t testing.TB, dir, prefix string, names ...string) error {
	t.Helper()
	for _, name := range names {
		to := filepath.Join(dir, name)
		if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := Link(kvmtest.Fixture(t, prefix+name), to); err != nil {
			return err
		}
	}
	return nil
}

// jailVariable holds the value of `forkd serve --jail` for all daemons. In the machine the runner
// sets strict: the machine supports every part of the jail, and a missing part must fail a test.
const jailVariable = "FORKD_TEST_JAIL"

// jailFlags returns the flags for jailVariable. A test's own flags come after them.
func jailFlags() []string {
	if mode := os.Getenv(jailVariable); mode != "" {
		return []string{"--jail", mode}
	}
	return nil
}

// WithNet installs forkd-net for the daemon. Its sandboxes have no network without it.
func (d *Daemon) WithNet(t testing.TB) error {
	t.Helper()
	return Link(kvmtest.Fixture(t, "forkd-net"), d.Net())
}

// URL returns the URL of the daemon's socket.
func (d *Daemon) URL() string { return "unix://" + filepath.Join(d.Run, "forkd.sock") }

// Forkd, VMM, Net and Spawn return the paths of the daemon's programs.
func (d *Daemon) Forkd() string { return filepath.Join(d.Bin, "forkd") }
func (d *Daemon) VMM() string   { return filepath.Join(d.Bin, "forkd-vmm") }
func (d *Daemon) Net() string   { return filepath.Join(d.Bin, "forkd-net") }
func (d *Daemon) Spawn() string { return filepath.Join(d.Bin, "forkd-spawn") }

// Images returns the directory of the daemon's images.
func (d *Daemon) Images() string { return filepath.Join(d.Data, "images") }

// PID returns the process ID of the daemon, which must be running.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Running reports whether the daemon was started and has not been ended since.
func (d *Daemon) Running() bool { return d.cmd != nil }

// patience limits waits for events. It is long, because a slow machine is no failure.
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
		"--identity-timeout", (5 * patience).String()}, // a slow machine is no failure
		slices.Concat(jailFlags(), d.Flags)...)
	cmd := commandOf(d, args)
	cmd.Stdout, cmd.Stderr = log, log
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

// commandOf returns a daemon's command.
func commandOf(d *Daemon, args []string) *exec.Cmd {
	cmd := exec.Command(d.Forkd(), args...)
	switch {
	case d.Container:
		inside := append([]string{"-c", `mount -t proc proc /proc && exec "$@"`, "sh", filepath.Join(d.fixtures, "forkd-kube"),
			"init", "--", d.Forkd()}, args...)
		cmd = exec.Command("/bin/sh", inside...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	case d.User != nil:
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.User}
	}
	return cmd
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
	_ = d.Client.Close() // closes idle connections to the old process
	return state
}

// Kill ends a sandbox.
func (d *Daemon) Kill(id string) error {
	d.kills.Add(1)
	return d.Client.Kill(context.Background(), id)
}

// KillProcess ends a VMM by SIGKILL. It reports whether the process existed.
func (d *Daemon) KillProcess(pid int) bool {
	d.kills.Add(1)
	return syscall.Kill(pid, syscall.SIGKILL) == nil
}

// Finish stops the daemon for good. It returns an error for any leftovers.
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

// Log returns the end of the daemon's log.
func (d *Daemon) Log() string {
	log := d.wholeLog()
	return log[max(0, len(log)-16<<10):]
}

func (d *Daemon) wholeLog() string {
	b, _ := os.ReadFile(d.logFile())
	return string(b)
}

// VMDirs returns the folders of VMs in the run directory.
func (d *Daemon) VMDirs() []string { return Names(filepath.Join(d.Run, "vm")) }

// Processes returns the pids of all VMMs of this daemon, without zombies.
func (d *Daemon) Processes() []int { return running(d.VMM()) }

// NetProcesses returns the pids of the daemon's forkd-net, which outlives the daemon. There is at
// most one, unless another is about to end. The result does not include its child, which reads
// resolv.conf and ends with it.
func (d *Daemon) NetProcesses() []int {
	all := running(d.Net())
	return slices.DeleteFunc(slices.Clone(all), func(pid int) bool { return slices.Contains(all, parent(pid)) })
}

// parent returns the parent of a process, or 0 if the process has ended.
func parent(pid int) (of int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if n, is := strings.CutPrefix(line, "PPid:"); is {
			of, _ = strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return of
}

// SpawnProcesses returns the pids of forkd-spawn, and of processes about to become VMMs.
func (d *Daemon) SpawnProcesses() []int { return running(d.Spawn()) }

// running returns the pids of a program's processes, also of those whose file was replaced.
func running(program string) []int {
	var pids []int
	for _, name := range Names("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if exe, err := os.Readlink("/proc/" + name + "/exe"); err == nil && strings.TrimSuffix(exe, " (deleted)") == program {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
