package appliance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// StartOptions configures a machine.
type StartOptions struct {
	Spec Spec // zero fields keep the earlier value or get the default
	// Network overrides sandbox network settings. Nil fields are kept.
	Network NetworkChange
	// Jail is the flag of forkd serve with this name. If empty, it is unchanged.
	Jail string
	// Serve holds additional flags for forkd serve, already checked. If nil, they are unchanged.
	Serve *[]string
	// Kernel is a series, such as "6.1", or a Debian package, to use instead of the default kernel, for features
	// that need another kernel. It is not stored, so it applies to this start only.
	Kernel string
	// Restart replaces a running machine if its programs or settings differ from the requested ones. Otherwise
	// the machine is left running.
	Restart bool
	// Retire is called before a running machine is stopped to be replaced. If it returns an error, the machine is
	// left running. May be nil.
	Retire func(context.Context) error
	// AgentOnly does not wait for the daemon, for tests with their own programs.
	AgentOnly bool
	// Wait limits the time to the first answer; 0 means DefaultStartWait.
	Wait time.Duration
	// Progress is called with one short line for each event. May be nil.
	Progress func(string)
}

// DefaultStartWait is generous, because a loaded host emulates slowly.
const DefaultStartWait = 120 * time.Second

// StartResult is the result of Start.
type StartResult struct {
	Already bool // it was running before
	Stale   bool // it was running before, with other programs or settings
	Took    time.Duration
}

// Start makes sure that the machine is running and answers.
func (a *Appliance) Start(ctx context.Context, opt StartOptions) (_ StartResult, err error) {
	if opt.Progress == nil {
		opt.Progress = func(string) {}
	}
	if opt.Wait == 0 {
		opt.Wait = DefaultStartWait
	}
	began := time.Now()
	fresh := !a.Exists()
	unlock, err := a.lock(ctx)
	if err != nil {
		return StartResult{}, err
	}
	defer unlock()
	defer func() {
		if _, unknown := os.Stat(a.path(stateFile)); err != nil && fresh && errors.Is(unknown, os.ErrNotExist) {
			_ = os.RemoveAll(a.Dir) // the machine never existed
		}
	}()
	if err := a.prepare(); err != nil {
		return StartResult{}, fmt.Errorf("prepare %s: %w", a.Dir, err)
	}
	res, err := a.startLocked(ctx, opt)
	res.Took = time.Since(began)
	return res, err
}

func (a *Appliance) startLocked(ctx context.Context, opt StartOptions) (StartResult, error) {
	earlier, err := a.running()
	if err != nil && !errors.Is(err, ErrNotRunning) {
		return StartResult{}, err
	}
	if err == nil && !opt.Restart {
		if err := a.sameAs(earlier, opt); err != nil {
			return StartResult{Already: true}, err
		}
	}
	plan, perr := a.plan(ctx, opt, earlier)
	if err == nil { // it is running
		if opt.Restart && perr != nil {
			return StartResult{Already: true}, perr
		}
		stale := perr == nil && plan.state.differs(earlier)
		if !stale || !opt.Restart {
			return StartResult{Already: true, Stale: stale}, a.waitReady(ctx, earlier, opt.Wait, opt.AgentOnly)
		}
		if opt.Retire != nil {
			if err := opt.Retire(ctx); err != nil {
				return StartResult{Already: true, Stale: true}, err
			}
		}
		opt.Progress("stopping the machine to renew its programs")
		if err := a.stopLocked(ctx, earlier); err != nil {
			return StartResult{}, err
		}
	}
	if perr != nil {
		return StartResult{}, perr
	}
	if pid := a.orphan(); pid != 0 {
		opt.Progress("ending a machine whose start was interrupted")
		if err := kill(pid, a.isOrphan(pid), 10*time.Second); err != nil {
			return StartResult{}, err
		}
	}
	return StartResult{}, a.launch(ctx, plan, opt)
}

// differs reports whether a new start would give another machine than the running one.
func (s state) differs(running state) bool {
	return s.Digest != running.Digest || s.Spec != running.Spec || s.Jail != running.Jail ||
		!slices.Equal(s.Serve, running.Serve) ||
		!s.Network.same(running.Network)
}

// ErrDiffers means that a machine is running with other values than the requested ones.
var ErrDiffers = errors.New("they are not applied to a machine that runs")

// sameAs returns an error if the running machine lacks a requested value. Values that were not requested may
// differ.
func (a *Appliance) sameAs(runs state, opt StartOptions) error {
	var differ []string
	note := func(differs bool, format string, args ...any) {
		if differs {
			differ = append(differ, fmt.Sprintf(format, args...))
		}
	}
	number := func(asked, runs int, format string) { note(asked != 0 && asked != runs, format, runs, asked) }
	number(opt.Spec.CPUs, runs.Spec.CPUs, "%d CPUs, not %d")
	number(opt.Spec.MemoryMiB, runs.Spec.MemoryMiB, "%d MiB of memory, not %d")
	number(opt.Spec.DiskGiB, runs.Spec.DiskGiB, "a disk of %d GiB, not %d")
	note(opt.Jail != "" && opt.Jail != runs.Jail, "jail %s, not %s", cmp.Or(runs.Jail, "as the daemon has it"), opt.Jail)
	note(opt.Serve != nil && !slices.Equal(*opt.Serve, runs.Serve), "other flags of its daemon")
	is := strings.HasPrefix(runs.Kernel, opt.Kernel+".") || strings.HasSuffix(opt.Kernel, runs.Kernel)
	note(opt.Kernel != "" && !is, "kernel %s, not %s", runs.Kernel, opt.Kernel)
	for _, part := range runs.Network.changed(opt.Network).differing(runs.Network) {
		note(true, "another %s", part)
	}
	if len(differ) == 0 {
		return nil
	}
	return reasonedError{fmt.Errorf("machine %s runs with %s: %w", a.Name, strings.Join(differ, "; "), ErrDiffers),
		"machine_differs", map[string]string{"machine": a.Name}}
}

// plan holds all decisions made before QEMU starts.
type plan struct {
	qemu     string
	kernel   *kernel
	programs map[string]string
	x2apic   bool
	ipv6     bool
	state    state // without the process
}

// plan makes all decisions and checks. It changes nothing.
func (a *Appliance) plan(ctx context.Context, opt StartOptions, earlier state) (plan, error) {
	p := plan{state: earlier}
	p.state.Spec = opt.Spec.withDefaults(earlier.Spec)
	if err := p.state.Spec.validate(); err != nil {
		return p, err
	}
	p.state.Jail = cmp.Or(opt.Jail, earlier.Jail)
	if opt.Serve != nil {
		p.state.Serve = *opt.Serve
	}
	p.state.Network = earlier.Network.changed(opt.Network)
	if _, err := p.state.Network.args(); err != nil {
		return p, err
	}
	var qv version
	var err error
	if p.qemu, qv, err = findQEMU(ctx); err != nil {
		return p, err
	}
	if p.kernel, err = findKernel(ctx, opt.Kernel, opt.Progress); err != nil {
		return p, err
	}
	kv, err := parseVersion(p.kernel.release)
	if err != nil {
		return p, err
	}
	p.state.Accel = chooseAccel()
	if p.state.Spec.CPUs, err = checkVersions(qv, kv, p.state.Accel, p.state.Spec.CPUs); err != nil {
		return p, err
	}
	p.x2apic, p.ipv6 = hasX2APIC(qv, p.state.Accel), hasIPv6()
	p.state.QEMU, p.state.Kernel = qv.String(), p.kernel.release
	if p.programs, err = findPrograms(); err != nil {
		return p, err
	}
	if err := checkJail(p.state.Jail, p.programs); err != nil {
		return p, err
	}
	if p.state.Digest, err = digestPrograms(p.programs); err != nil {
		return p, err
	}
	busybox, err := busyboxPath()
	p.programs["usr/bin/busybox"] = busybox
	return p, err
}

// launch starts QEMU and waits for the appliance's answer.
func (a *Appliance) launch(ctx context.Context, p plan, opt StartOptions) error {
	if err := a.writeInputs(ctx, p); err != nil {
		return err
	}
	opt.Progress(fmt.Sprintf("booting (QEMU %s, %s, kernel %s)", p.state.QEMU, p.state.Accel, p.state.Kernel))
	s, err := a.spawn(ctx, p)
	if err != nil {
		return err
	}
	if err := a.writeState(s); err != nil {
		return errors.Join(fmt.Errorf("write state: %w", err), kill(s.PID, s.alive, 10*time.Second))
	}
	if err := a.waitReady(ctx, s, opt.Wait, opt.AgentOnly); err != nil {
		if ctx.Err() != nil { // the user cancelled: do not leave a partial start
			return errors.Join(err, kill(s.PID, s.alive, 10*time.Second))
		}
		return err
	}
	if err := lengthenQueues(s.PID, s.APIPort, s.AgentPort); err != nil {
		opt.Progress(fmt.Sprintf("many connections at once may be refused: %v", err))
	}
	return nil
}

// writeInputs writes QEMU's input files.
func (a *Appliance) writeInputs(ctx context.Context, p plan) error {
	token, err := a.Token()
	if err != nil {
		return err
	}
	if err := (dataDisk{a.path(diskFile)}).ensure(ctx, p.state.Spec.DiskGiB); err != nil {
		return err
	}
	if err := a.writeInitrd(p, token); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	if err := linkOrCopy(p.kernel.image, a.path(kernelFile)); err != nil {
		return fmt.Errorf("place kernel: %w", err)
	}
	for _, name := range []string{consoleFile, qemuLogFile} { // keep one older log, which shows how the last run ended
		if err := rotateLog(a.path(name), 0); err != nil {
			return fmt.Errorf("rotate %s: %w", name, err)
		}
	}
	return nil
}

// linkOrCopy creates a hard link to a file, or a copy on another file system.
func linkOrCopy(from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return durable.Replace(to, b)
}

// spawn starts QEMU in a new session, so it outlives this process.
func (a *Appliance) spawn(ctx context.Context, p plan) (state, error) {
	s := p.state
	var err error
	if s.APIPort, s.AgentPort, err = pickPorts(s.APIPort, s.AgentPort); err != nil {
		return s, fmt.Errorf("find a free port: %w", err)
	}
	for _, name := range []string{qmpSocket, ctlSocket, pidFile} {
		if err := os.Remove(a.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return s, err
		}
	}
	log, err := os.OpenFile(a.path(qemuLogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return s, err
	}
	defer log.Close()
	l := launch{name: a.qemuName(), accel: s.Accel, x2apic: p.x2apic, ipv6: p.ipv6, spec: s.Spec,
		apiPort: s.APIPort, agentPort: s.AgentPort}
	cmd := exec.Command(p.qemu, l.args()...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = a.Dir, log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return s, fmt.Errorf("start QEMU: %w", err)
	}
	s.PID, s.BootID, s.StartedAt = cmd.Process.Pid, hostproc.BootID(), time.Now().UTC().Truncate(time.Millisecond)
	s.StartTime, err = hostproc.StartTime(s.PID)
	_ = cmd.Process.Release()
	if err != nil || !s.alive() {
		return s, a.deathReport(errDied)
	}
	return s, ctx.Err()
}

// pickPorts returns two free ports: the earlier ones if they are still free.
func pickPorts(earlier ...int) (api, agent int, err error) {
	var got [2]int
	for i := range got {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", earlier[i]))
		if err != nil {
			if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				return 0, 0, err
			}
		}
		defer l.Close()
		got[i] = l.Addr().(*net.TCPAddr).Port
	}
	return got[0], got[1], nil
}

// rotateLog keeps one older log. QEMU appends to its logs, so a log in use is copied and truncated.
func rotateLog(path string, above int64) error {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && st.Size() <= above {
		return nil
	}
	if err != nil {
		return err
	}
	b, err := tailFile(path, maxConsole)
	if err != nil {
		return err
	}
	if err := durable.Replace(path+".1", b); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}

// dialSocket connects to a socket in the machine's directory. It opens the directory and uses the descriptor in
// the path, which keeps the path short enough for the kernel.
func (a *Appliance) dialSocket(ctx context.Context, name string) (net.Conn, error) {
	dir, err := os.Open(a.Dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var d net.Dialer
	return d.DialContext(ctx, "unix", filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), name))
}
