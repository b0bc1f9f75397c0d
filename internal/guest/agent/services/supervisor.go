// Package services supervises programs in the guest: it starts them, checks that they are ready,
// restarts them after a crash and keeps the end of their output. All of it is part of the guest's
// memory, so a clone continues with its source's services as they were. An idle service has a timer
// only if it is checked for liveness. The declarations are also in a file, for a boot from the disk alone.
package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/servicewire"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// Process is a started program with its descendants.
type Process interface {
	PID() int
	Group() string         // name of its control group, for a later program of this agent; may be empty
	Done() <-chan struct{} // closed when the program has ended
	ExitCode() int         // valid after Done; 128+n after signal n
	Signal(number int)     // sends a signal to the program's process group
	Kill()                 // kills it and all descendants, also after its end
}

// Config configures a Supervisor. Start and Log are required.
type Config struct {
	// Start starts a service's command. Its output goes to out, or is discarded if out is nil.
	Start func(spec servicespec.Spec, out *os.File) (Process, error)
	// Adopt takes over the process of an earlier program of this agent. It may be nil.
	Adopt func(pid int, group string) (Process, error)
	// Gate is read-locked from reading output until it is in the log. If nil, a lock of its own.
	Gate *sync.RWMutex
	// From is the state of an earlier program of this agent. If nil, the services of File start.
	From *Restored
	// After replaces time.After for the times of checks. It may be nil.
	After func(time.Duration) <-chan time.Time
	// Changed is called after each change, without a lock. It must not block. It may be nil.
	Changed func()
	// File keeps the declarations. If empty, they are kept in memory alone.
	File string
	Log  func(format string, args ...any) // receives noteworthy events
}

// Errors of requests.
var (
	ErrNotFound = errors.New("there is no such service")
	ErrFull     = fmt.Errorf("a sandbox has at most %d services: remove one first", servicespec.MaxServices)
	errClosed   = errors.New("the agent is stopping")
)

// Supervisor runs the services of a guest.
type Supervisor struct {
	cfg     Config
	running sync.WaitGroup
	after   clock
	wakes   atomic.Int64 // calls of Woke

	mu      sync.Mutex
	all     map[string]*service
	changed chan struct{} // closed and replaced at each change
	closed  bool
}

// service is a declared service. Supervisor.mu guards its fields, except for log.
type service struct {
	st   servicespec.Status
	log  *log
	stop context.CancelFunc // ends the current loop; nil if it has no loop
	done chan struct{}      // closed when the loop has ended
	held bool               // stopped by request, also after a boot
	turn turn
}

// turn is the place of a service's loop.
type turn struct {
	ctx   context.Context // of the loop; nil before the first one
	run   *run            // nil while no program runs
	wait  time.Duration   // the next or current pause after a crash
	inRow int             // restarts without a long run between
	pause bool            // it waits for the next start
}

// New returns a supervisor, and starts the services of its file.
func New(cfg Config) *Supervisor {
	if cfg.Gate == nil {
		cfg.Gate = new(sync.RWMutex)
	}
	s := &Supervisor{cfg: cfg, after: cfg.After, all: map[string]*service{}, changed: make(chan struct{})}
	if s.after == nil {
		s.after = time.After
	}
	if cfg.From != nil {
		s.restore(*cfg.From)
		return s
	}
	if err := s.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		cfg.Log("services: %v", err)
	}
	return s
}

// List returns all services by name.
func (s *Supervisor) List() servicewire.List {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listLocked()
}

func (s *Supervisor) listLocked() servicewire.List {
	out := servicewire.List{Services: make([]servicespec.Status, 0, len(s.all))}
	for _, v := range s.all {
		st := v.st
		st.LogBytes, st.LogLost = v.log.span()
		out.Services = append(out.Services, st)
	}
	slices.SortFunc(out.Services, func(a, b servicespec.Status) int { return cmp.Compare(a.Spec.Name, b.Spec.Name) })
	return out
}

// Await waits until every service is settled, or ctx ends, and returns the list.
func (s *Supervisor) Await(ctx context.Context) servicewire.List {
	for {
		s.mu.Lock()
		l, changed := s.listLocked(), s.changed
		s.mu.Unlock()
		if !slices.ContainsFunc(l.Services, func(st servicespec.Status) bool { return !st.Settled() }) {
			return l
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return l
		}
	}
}

// Declare starts a service. If there is one of its name with another declaration, it is stopped and
// replaced. A service with the same declaration is left as it is.
func (s *Supervisor) Declare(ctx context.Context, spec servicespec.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	old := s.all[spec.Name]
	same, full := old != nil && old.st.Spec.Equal(spec), old == nil && len(s.all) >= servicespec.MaxServices
	s.mu.Unlock()
	switch {
	case same:
		return nil
	case full:
		return ErrFull
	case old != nil:
		if err := s.halt(ctx, old); err != nil {
			return err
		}
	}
	if err := s.put(old, spec); err != nil {
		return err
	}
	s.save()
	return nil
}

// put starts a service in the place of an older one, which may be nil.
func (s *Supervisor) put(old *service, spec servicespec.Spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if s.all[spec.Name] != old || old == nil && len(s.all) >= servicespec.MaxServices {
		return fmt.Errorf("service %s was changed at the same time: try again", spec.Name)
	}
	v := newService(spec)
	s.all[spec.Name] = v
	s.startLocked(v)
	return nil
}

func newService(spec servicespec.Spec) *service {
	return &service{st: servicespec.Status{Spec: spec, State: servicespec.Stopped, SinceNS: time.Now().UnixNano()},
		log: newLog(int(cmp.Or(spec.LogBytes, servicespec.DefaultLog)))}
}

// Do stops, starts or restarts a service. It returns when the service has ended or was begun.
func (s *Supervisor) Do(ctx context.Context, name, action string) error {
	v, err := s.find(name)
	if err != nil {
		return err
	}
	switch action {
	case "stop", "restart":
		if err := s.halt(ctx, v); err != nil {
			return err
		}
	case "start":
	default:
		return fmt.Errorf("action %.40q: want stop, start or restart", action)
	}
	s.mu.Lock()
	v.held = action == "stop"
	if !v.held && s.all[name] == v && !s.closed {
		s.startLocked(v)
	}
	s.mu.Unlock()
	s.save()
	return nil
}

// Remove stops a service and forgets it with its log.
func (s *Supervisor) Remove(ctx context.Context, name string) error {
	v, err := s.find(name)
	if err != nil {
		return err
	}
	if err := s.halt(ctx, v); err != nil {
		return err
	}
	s.mu.Lock()
	if s.all[name] == v {
		delete(s.all, name)
	}
	s.noteLocked()
	s.mu.Unlock()
	s.tell()
	s.save()
	return nil
}

// Close kills all services and waits for them.
func (s *Supervisor) Close() {
	s.mu.Lock()
	s.closed = true
	for _, v := range s.all {
		if v.stop != nil {
			v.stop()
		}
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *Supervisor) find(name string) (*service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.all[name]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("service %.40q: %w", name, ErrNotFound)
}

// halt ends a service's loop and waits for its end.
func (s *Supervisor) halt(ctx context.Context, v *service) error {
	s.mu.Lock()
	stop, done := v.stop, v.done
	s.mu.Unlock()
	if stop == nil {
		s.set(v, func(st *servicespec.Status) { st.State = servicespec.Stopped })
		return nil
	}
	stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startLocked begins a service's loop, unless it has one.
func (s *Supervisor) startLocked(v *service) {
	if v.stop != nil {
		return
	}
	v.st.State, v.st.Error, v.st.SinceNS = servicespec.Starting, "", time.Now().UnixNano()
	v.turn = turn{wait: orDefault(v.st.Spec.Backoff.InitialMS, servicespec.DefaultBackoff)}
	s.noteLocked()
	s.loopLocked(v)
}

// loopLocked runs a service's loop from its place on.
func (s *Supervisor) loopLocked(v *service) {
	ctx, cancel := context.WithCancel(context.Background())
	v.stop, v.done, v.turn.ctx = cancel, make(chan struct{}), ctx
	s.running.Go(func() {
		defer cancel()
		end, err := s.supervise(ctx, v)
		s.set(v, func(st *servicespec.Status) {
			v.stop = nil
			close(v.done)
			st.State, st.PID = end, 0
			if err != nil {
				st.Error = servicespec.ClipError(err)
			}
		})
	})
}

// set changes a service's status and reports the change.
func (s *Supervisor) set(v *service, change func(*servicespec.Status)) {
	s.mu.Lock()
	before := v.st.State
	change(&v.st)
	if v.st.State != before {
		v.st.SinceNS = time.Now().UnixNano()
	}
	s.noteLocked()
	s.mu.Unlock()
	s.tell()
}

func (s *Supervisor) noteLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Supervisor) tell() {
	if s.cfg.Changed != nil {
		s.cfg.Changed()
	}
}
