package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/confine/jail/stage"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
	vmclient "github.com/forkd/forkd/internal/vm/vmctl/client"
)

// Config describes how VMMs are started.
type Config struct {
	Binary string // the forkd-spawn executable
	// Strict makes Open fail if a needed part is missing. Otherwise the supported parts are used.
	Strict bool
	Log    *slog.Logger // gets warnings, such as missing parts of the jail
}

// Spawner starts VMMs in a jail. Its methods are safe for concurrent use.
type Spawner struct {
	cfg  Config
	want jail.Set // the parts applied to each VMM

	mu     sync.Mutex  // guards the fields below; held while the process is started
	conn   *connection // nil if there is none
	closed bool
}

var _ vmclient.Starter = (*Spawner)(nil)

// ErrMissing is returned if this host does not support a required part of the jail.
var ErrMissing = errors.New("this host cannot put VMs in a jail")

// Open starts forkd-spawn, probes the host's support, and logs the missing parts.
func Open(ctx context.Context, c Config) (*Spawner, error) {
	s := &Spawner{cfg: c}
	report, err := s.probe(ctx)
	if err == nil {
		err = s.settle(report)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Probe reports the parts of a jail supported by this host.
func Probe(ctx context.Context, binary string) (Report, error) {
	s := &Spawner{cfg: Config{Binary: binary, Log: slog.New(slog.DiscardHandler)}}
	defer s.Close()
	return s.probe(ctx)
}

func (s *Spawner) probe(ctx context.Context) (Report, error) {
	if err := stage.Available(); err != nil {
		return Report{}, err
	}
	c, err := s.connection()
	if err != nil {
		return Report{}, err
	}
	a, err := c.ask(ctx, wire.Message{Kind: wire.Probe})
	if err != nil {
		return Report{}, err
	}
	if a.Kind != wire.Probed {
		unixfd.CloseAll(a.files)
		return Report{}, fmt.Errorf("%w: a probe is answered by kind %d", wire.ErrMessage, a.Kind)
	}
	return newReport(a.Errnos, c.process.Pid), nil
}

// settle selects the jail's parts for VMMs.
func (s *Spawner) settle(r Report) error {
	s.want = r.Can()
	if missing := jail.Needed() &^ s.want; s.cfg.Strict && missing != 0 {
		return fmt.Errorf("%w: %s", ErrMissing, r.reasons(missing))
	}
	if missing := jail.All &^ s.want; missing != 0 {
		s.cfg.Log.Warn("VMs are in a jail that lacks parts on this host", "missing", r.reasons(missing))
	}
	if r.Userfaultfd != nil {
		s.cfg.Log.Warn("VMs in a jail cannot use userfaultfd: running sandboxes stand still while they are branched",
			"err", r.Userfaultfd)
	}
	return nil
}

// Want returns the parts of each VMM's jail.
func (s *Spawner) Want() jail.Set { return s.want }

// PID returns the pid of forkd-spawn, or 0 if it is not running.
func (s *Spawner) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return 0
	}
	return s.conn.process.Pid
}

// Close ends forkd-spawn. VMMs keep running.
func (s *Spawner) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.conn != nil {
		s.conn.close()
		s.conn = nil
	}
}

// connection returns a connection to a live process. It starts a process if necessary.
func (s *Spawner) connection() (*connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, os.ErrClosed
	}
	if s.conn != nil {
		select {
		case <-s.conn.done:
			s.cfg.Log.Warn("forkd-spawn has ended, and is started again", "err", s.conn.err)
			s.conn.close()
			s.conn = nil
		default:
			return s.conn, nil
		}
	}
	c, err := startProcess(s.cfg.Binary, s.cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("start forkd-spawn: %w", err)
	}
	s.conn = c
	return c, nil
}

// Start implements vmclient.Starter.
func (s *Spawner) Start(ctx context.Context, l vmclient.Launch) (vmclient.Started, error) {
	program, err := unix.Open(l.Binary, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return vmclient.Started{}, fmt.Errorf("open %s: %w", l.Binary, err)
	}
	binary := os.NewFile(uintptr(program), l.Binary)
	defer binary.Close()
	m := wire.Message{
		Kind: wire.Spawn, Want: s.want, Shape: l.Start.Shape, Prewarm: l.Start.Prewarm, Files: wire.Required,
		FileSize: fileSize(l),
	}
	if l.Start.Seccomp != seccomp.Off {
		m.Seccomp = l.Start.Seccomp
	}
	if m.Seccomp == "" { // the caller requested no filters
		m.Want = m.Want.Without(jail.Calls)
	}
	files := []*os.File{binary, l.Null, l.Log, l.KVM, l.Control, l.Vsock, l.Console}
	if l.Failpoints != nil {
		m.Files, files = m.Files|wire.Failpoints, append(files, l.Failpoints)
	}
	if device, err := os.OpenFile(userfaultfd, os.O_RDWR, 0); err == nil {
		defer device.Close()
		m.Files, files = m.Files|wire.Userfaultfd, append(files, device)
	}
	if l.Cgroup != nil {
		m.Files, files = m.Files|wire.Cgroup, append(files, l.Cgroup)
	}
	c, a, err := s.ask(ctx, m, files...)
	if err != nil {
		return vmclient.Started{}, err
	}
	return a.started(c)
}

// ask sends a request to the current process, or to a new one if the current one had ended before.
func (s *Spawner) ask(ctx context.Context, m wire.Message, files ...*os.File) (*connection, answer, error) {
	c, err := s.connection()
	if err != nil {
		return nil, answer{}, err
	}
	a, err := c.ask(ctx, m, files...)
	if !errors.Is(err, errUnheard) {
		return c, a, err
	}
	select {
	case <-c.done: // its end may be noticed at any moment
	case <-ctx.Done():
		return nil, answer{}, fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if c, err = s.connection(); err != nil {
		return nil, answer{}, err
	}
	a, err = c.ask(ctx, m, files...)
	return c, a, err
}

// fileSize returns the size limit for files written by a VMM: memory in a capture or a save, with
// the data besides it, and overlay files. The disks of a new shell are not known yet.
func fileSize(l vmclient.Launch) uint64 {
	const beside = 1 << 30
	return uint64(max(l.Start.Shape.MemoryBytes(), overlay.MaxSize)) + beside
}
