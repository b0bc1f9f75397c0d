package interp

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/generation"
	"github.com/forkd/forkd/internal/guest/agent/procgroup"
	"github.com/forkd/forkd/internal/guest/agent/reap"
)

const (
	// startLimit bounds an interpreter's start; an emulated guest is slow.
	startLimit = 60 * time.Second
	// grace is what an interrupted evaluation has to unwind.
	grace = 2 * time.Second
	// reseedLimit bounds the reseeding after a fork, and quiesceLimit gc. They are for interpreters
	// that hang: a slow one among a hundred siblings must not lose its state, and the daemon has a limit of its own.
	reseedLimit  = 60 * time.Second
	quiesceLimit = 60 * time.Second
	maxResult    = 1 << 20
	// seedTime is the limit of an evaluation, at least, in whose time a clone's seed may be taken, too.
	seedTime = 10 * time.Second
)

// exitTimeout is the exit code of an evaluation that ran out of time, as of
// timeout(1).
const exitTimeout = 124

// Set is the interpreters of this guest, at most one per language.
type Set struct {
	reaper *reap.Reaper
	groups *procgroup.Groups
	rec    *defaults.Record
	slots  map[string]*slot
	names  []string
	// root ends what goes on without a caller, at Close.
	root  context.Context
	close context.CancelFunc
}

// slot serialises what is asked of one language's interpreter.
type slot struct {
	lang Language
	busy chan struct{} // holds one token while somebody uses the interpreter

	mu   sync.Mutex // guards proc against readers that do not hold busy
	proc *proc
	// owed is a clone's seed that the interpreter gets before anything else runs in it.
	owed *Seed
	// lost is why the interpreter was ended when it got its seed; the next who asks is told.
	lost error
}

// NewSet makes a set in which no interpreter is started yet.
func NewSet(r *reap.Reaper, g *procgroup.Groups, rec *defaults.Record, langs ...Language) *Set {
	s := &Set{reaper: r, groups: g, rec: rec, slots: map[string]*slot{}}
	s.root, s.close = context.WithCancel(context.Background())
	for _, l := range langs {
		s.slots[l.Name] = &slot{lang: l, busy: make(chan struct{}, 1)}
		s.names = append(s.names, l.Name)
	}
	slices.Sort(s.names)
	return s
}

// UnknownLanguageError names a language that has no driver.
type UnknownLanguageError struct {
	Name  string
	Known []string
}

func (e *UnknownLanguageError) Error() string {
	return fmt.Sprintf("language %q is not known; there is: %s", e.Name, strings.Join(e.Known, ", "))
}

// Result is what an evaluation brought.
type Result struct {
	Result, Error, Traceback string
	// Stdout and Stderr are bytes as they came.
	Stdout, Stderr      string
	ExitCode            int
	StateLost, TimedOut bool
	Dropped             int64
}

// Info describes a live interpreter.
type Info struct {
	Language string
	Pid      int
	Version  string
	Modules  map[string]string
}

// Eval runs code and waits for its result at most limit; the interpreter is
// started if there is none. What goes wrong in the code is in the result. In a
// clone an evaluation goes on once it has had its turn, and its result is lost;
// those that wait for their turn are the source's.
func (s *Set) Eval(ctx context.Context, language, code string, limit time.Duration) (Result, error) {
	sl, err := s.acquire(ctx, language)
	if err != nil {
		return Result{}, err
	}
	defer s.release(sl)
	ctx, stop := s.outlive(ctx)
	defer stop()
	var seed *Seed
	if limit >= seedTime {
		seed = sl.takeOwed()
	}
	if err := s.ensure(ctx, sl); err != nil {
		return Result{}, err
	}
	return sl.eval(ctx, code, limit, seed)
}

// Start starts the language's interpreter if it does not run.
func (s *Set) Start(ctx context.Context, language string) error {
	sl, err := s.acquire(ctx, language)
	if err != nil {
		return err
	}
	defer s.release(sl)
	ctx, stop := s.outlive(ctx)
	defer stop()
	return s.ensure(ctx, sl)
}

func (s *Set) acquire(ctx context.Context, language string) (*slot, error) {
	sl := s.slots[language]
	if sl == nil {
		return nil, &UnknownLanguageError{language, s.names}
	}
	if sl.tryAcquire() {
		return sl, nil
	}
	select {
	case sl.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the %s interpreter: %w", language, ctx.Err())
	}
	if err := left(ctx); err != nil {
		s.release(sl)
		return nil, fmt.Errorf("wait for the %s interpreter: %w", language, err)
	}
	return sl, nil
}

// left is why a caller that had to wait gets no turn. In a clone it is the source that has this caller, which may be
// known before the end of its connection is.
func left(ctx context.Context) error {
	if generation.Changed(ctx) {
		return errors.New("asked for by a caller of the guest that this one was cloned from")
	}
	return ctx.Err()
}

// outlive is the context of what was begun in an interpreter: to break it off
// may cost the state, which a clone must not lose for being a clone.
func (s *Set) outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := generation.Outlive(ctx)
	stop := context.AfterFunc(s.root, cancel)
	return ctx, func() { stop(); cancel() }
}

func (sl *slot) tryAcquire() bool {
	select {
	case sl.busy <- struct{}{}:
		return true
	default:
		return false
	}
}

// release gives the turn to the next, after what is owed. Preconditions: the
// caller holds the slot.
func (s *Set) release(sl *slot) {
	for {
		if err := s.settle(sl); err != nil {
			sl.lost = err
		}
		<-sl.busy
		// A seed may have come in between. Whoever else has the turn settles it.
		if !sl.owes() || !sl.tryAcquire() {
			return
		}
	}
}

func (sl *slot) owes() bool {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	return sl.owed != nil
}

// takeOwed is the seed that is owed to an interpreter that runs, for who sees to it that it comes first.
func (sl *slot) takeOwed() *Seed {
	if sl.proc == nil || !sl.proc.alive() {
		return nil // one that is started has no state that siblings share
	}
	sl.mu.Lock()
	defer sl.mu.Unlock()
	seed := sl.owed
	sl.owed = nil
	return seed
}

func (sl *slot) owe(seed *Seed) {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	sl.owed = seed
}

// settle reseeds if that is owed. If it fails the interpreter is ended: better no
// state than a shared random state. Preconditions: the caller holds the slot.
func (s *Set) settle(sl *slot) error {
	sl.mu.Lock()
	seed := sl.owed
	sl.owed = nil
	sl.mu.Unlock()
	if seed == nil || sl.proc == nil {
		return nil
	}
	_, err := sl.reseed(s.root, *seed)
	if err != nil && sl.proc != nil {
		sl.drop()
		err = sl.unseeded(err)
	}
	return err
}

// unseeded says that an interpreter was ended, since it did not take its clone's seed.
func (sl *slot) unseeded(cause error) error {
	return fmt.Errorf("reseed %s (ended, its state is lost): %w", sl.lang.Name, cause)
}

// takeLost returns why an interpreter was ended unseen, once.
func (sl *slot) takeLost() error {
	err := sl.lost
	sl.lost = nil
	return err
}

func (s *Set) ensure(ctx context.Context, sl *slot) error {
	if err := cmp.Or(s.settle(sl), sl.takeLost()); err != nil {
		return err
	}
	if sl.proc != nil && sl.proc.alive() {
		return nil
	}
	sl.drop()
	p, err := s.startProc(ctx, sl.lang, startLimit)
	if err != nil {
		return err
	}
	sl.set(p)
	return nil
}

func (sl *slot) set(p *proc) {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	sl.proc = p
}

// drop ends the interpreter if there is one.
func (sl *slot) drop() {
	if p := sl.proc; p != nil {
		sl.set(nil)
		p.close()
	}
}

// eval evaluates, and has the interpreter take a seed before, which may be nil: with one message, as each
// that wakes it costs a clone's first evaluation two switches of tasks. It fails if the seed was not taken.
func (sl *slot) eval(ctx context.Context, code string, limit time.Duration, seed *Seed) (res Result, err error) {
	p := sl.proc
	a, err := p.call(ctx, request{Op: "eval", Code: code, MaxResult: maxResult, Seed: seed.words()}, limit)
	if interrupted := errors.Is(err, errTimeout) || (err != nil && ctx.Err() != nil); interrupted {
		res.TimedOut = errors.Is(err, errTimeout)
		why := fmt.Sprintf("evaluation ran longer than %s and was interrupted", limit)
		if !res.TimedOut {
			why = "evaluation was interrupted because its caller left"
		}
		p.interrupt()
		if a, err = p.wait(context.WithoutCancel(ctx), grace); err == nil {
			a.Error, a.ExitCode, a.Result = why, exitTimeout, ""
		} else {
			err = &goneError{sl.lang.Name, exitTimeout, "did not stop when interrupted and was killed: " + why}
		}
	}
	var d1, d2 int64
	res.Stdout, d1 = p.stdout.take()
	res.Stderr, d2 = p.stderr.take()
	res.Dropped = d1 + d2
	if err != nil {
		sl.drop()
		res.StateLost, res.Error, res.ExitCode = true, err.Error(), 1
		var gone *goneError
		if errors.As(err, &gone) {
			res.ExitCode = gone.code
		}
		return res, nil
	}
	if a.SeedError != "" {
		sl.drop()
		return Result{}, sl.unseeded(errors.New(a.SeedError))
	}
	res.Result, res.Error, res.Traceback, res.ExitCode = a.Result, a.Error, a.Traceback, int(int32(a.ExitCode))
	return res, nil
}

// Seed is what makes the interpreters of a clone its own.
type Seed struct {
	Entropy []byte
	Env     map[string]string
	Info    map[string]any
}

// words are what drivers get; nil for none.
func (s *Seed) words() *seedWords {
	if s == nil {
		return nil
	}
	return &seedWords{Entropy: hex.EncodeToString(s.Entropy), Env: s.Env, Info: s.Info}
}

// Reseeded tells what one interpreter did with a seed.
type Reseeded struct {
	Language string
	What     []string
	Later    bool // it is to be, before anything else runs in it
	Err      error
	Took     time.Duration
}

// Reseed reseeds every live interpreter that may run before it is asked something: at
// once. One that does not answer is ended. One that holds still gets its seed just before
// the next request, so that a clone which needs no interpreter wakes none: that would
// cost it the wake-up, and a page of its own for each that Python writes. One
// that evaluates, as it may in the clone of a running guest, gets it when that has ended.
func (s *Set) Reseed(ctx context.Context, seed Seed) []Reseeded {
	ctx, stop := s.outlive(ctx)
	defer stop()
	var out []Reseeded
	for _, name := range s.names {
		began := time.Now()
		sl := s.slots[name]
		sl.owe(&seed)
		if !sl.tryAcquire() {
			// Whoever has the turn looks for the seed once it has given it up.
			out = append(out, Reseeded{Language: name, Later: true, Took: time.Since(began)})
			continue
		}
		if sl.proc != nil && sl.proc.alive() && sl.proc.isIdle() {
			<-sl.busy // what is owed stays so
			out = append(out, Reseeded{Language: name, Later: true, Took: time.Since(began)})
			continue
		}
		sl.owe(nil)
		if sl.proc != nil {
			what, err := sl.reseed(ctx, seed)
			out = append(out, Reseeded{Language: name, What: what, Err: err, Took: time.Since(began)})
		}
		s.release(sl)
	}
	return out
}

func (sl *slot) reseed(ctx context.Context, seed Seed) ([]string, error) {
	if !sl.proc.alive() {
		sl.drop()
		return nil, nil
	}
	a, err := sl.proc.call(ctx, request{Op: "reseed", Seed: seed.words()}, reseedLimit)
	if err != nil {
		sl.drop()
		return nil, sl.unseeded(err)
	}
	if a.Error != "" {
		return a.Reseeded, errors.New(a.Error)
	}
	return a.Reseeded, nil
}

// Quiesce makes live interpreters collect garbage and hold still.
func (s *Set) Quiesce(ctx context.Context) error {
	staying, stop := s.outlive(ctx)
	defer stop()
	var errs []error
	for _, name := range s.names {
		sl, err := s.acquire(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if sl.proc != nil && sl.proc.alive() {
			if _, err := sl.proc.call(staying, request{Op: "quiesce"}, quiesceLimit); err != nil {
				sl.drop()
				errs = append(errs, fmt.Errorf("quiesce %s: %w", name, err))
			}
		}
		s.release(sl)
	}
	return errors.Join(errs...)
}

// About lists live interpreters without disturbing them.
func (s *Set) About() []Info {
	var out []Info
	for _, name := range s.names {
		sl := s.slots[name]
		sl.mu.Lock()
		if p := sl.proc; p != nil && p.alive() {
			out = append(out, p.about())
		}
		sl.mu.Unlock()
	}
	return out
}

// Stop ends all interpreters; the next use starts them anew.
func (s *Set) Stop() {
	for _, name := range s.names {
		sl, err := s.acquire(context.Background(), name)
		if err == nil {
			sl.drop()
			s.release(sl)
		}
	}
}

// Close ends all interpreters and evaluations, those without a caller too.
func (s *Set) Close() {
	s.close()
	s.Stop()
}
