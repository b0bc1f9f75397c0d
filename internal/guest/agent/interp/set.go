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
	// startLimit limits an interpreter's start. An emulated guest is slow.
	startLimit = 60 * time.Second
	// grace is the time for an interrupted evaluation to unwind.
	grace = 2 * time.Second
	// reseedLimit limits the reseeding after a fork, quiesceLimit the garbage collection. Both
	// catch interpreters that hang: a slow one among a hundred siblings must not lose its state,
	// and the daemon has its own limit.
	reseedLimit  = 60 * time.Second
	quiesceLimit = 60 * time.Second
	maxResult    = 1 << 20
	// seedTime is the minimum limit of an evaluation that may also take a clone's seed.
	seedTime = 10 * time.Second
)

// exitTimeout is the exit code of an evaluation that timed out, as in timeout(1).
const exitTimeout = 124

// Set holds the interpreters of this guest, at most one per language.
type Set struct {
	reaper *reap.Reaper
	groups *procgroup.Groups
	rec    *defaults.Record
	gate   *sync.RWMutex // read-locked while output is read and stored
	slots  map[string]*slot
	names  []string
	// root ends work without a caller, at Close.
	root  context.Context
	close context.CancelFunc
}

// slot serializes the requests to one language's interpreter.
type slot struct {
	lang Language
	busy chan struct{} // holds one token while the interpreter is in use

	mu   sync.Mutex // guards proc against readers that do not hold busy
	proc *proc
	// owed is a clone's seed. The interpreter takes it before it runs other code.
	owed *Seed
	// lost is the reason why the interpreter was ended during its reseed. The next caller gets it
	// as an error.
	lost error
}

// NewSet returns a set without running interpreters. Whoever locks gate keeps output in the kernel.
func NewSet(r *reap.Reaper, g *procgroup.Groups, rec *defaults.Record, gate *sync.RWMutex, langs ...Language) *Set {
	s := &Set{reaper: r, groups: g, rec: rec, gate: gate, slots: map[string]*slot{}}
	s.root, s.close = context.WithCancel(context.Background())
	for _, l := range langs {
		s.slots[l.Name] = &slot{lang: l, busy: make(chan struct{}, 1)}
		s.names = append(s.names, l.Name)
	}
	slices.Sort(s.names)
	return s
}

// UnknownLanguageError names a language without a driver.
type UnknownLanguageError struct {
	Name  string   // as requested
	Known []string // languages of the Set, sorted
}

func (e *UnknownLanguageError) Error() string {
	return fmt.Sprintf("language %q is not known; there is: %s", e.Name, strings.Join(e.Known, ", "))
}

// Result is the result of an evaluation.
type Result struct {
	// Result is the repr of the last expression's value, clipped to maxResult. Error is the
	// exception's type and message, or the reason for an interruption. All may be empty.
	Result, Error, Traceback string
	// Stdout and Stderr are the bytes as received.
	Stdout, Stderr string
	ExitCode       int // 0 on success, 124 after an interruption
	// StateLost is set if the interpreter was ended: the next evaluation starts with a new one.
	// TimedOut is set if the evaluation exceeded its limit.
	StateLost, TimedOut bool
	Dropped             int64 // bytes of Stdout and Stderr beyond the limit
}

// Info describes a live interpreter.
type Info struct {
	Language string            // Name of its Language
	Pid      int               // in the guest
	Version  string            // of the interpreter, as its driver reports it
	Modules  map[string]string // versions of loaded notable modules, by name
}

// Code is code to evaluate.
type Code struct {
	Text string
	// Env is in the interpreter's environment while the code runs. It may be nil.
	Env map[string]string
}

// Eval runs code and waits at most limit for its result. It starts the interpreter if necessary.
// Errors in the code are part of the result. In a clone, an evaluation in progress continues and
// its result is lost; waiting evaluations belong to the source and fail.
func (s *Set) Eval(ctx context.Context, language string, code Code, limit time.Duration) (Result, error) {
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

// Start starts the language's interpreter if it is not running.
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

// left returns the reason why a waiting caller gets no turn. In a clone, the caller belongs to the
// source, and this may be known before its connection ends.
func left(ctx context.Context) error {
	if generation.Changed(ctx) {
		return errors.New("asked for by a caller of the guest that this one was cloned from")
	}
	return ctx.Err()
}

// outlive returns the context for work in an interpreter. Cancelling it may cost the interpreter's
// state, and a clone must not lose the state only because it was cloned.
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

// release passes the slot on, after an owed seed was taken. The caller must hold the slot.
func (s *Set) release(sl *slot) {
	for {
		if err := s.settle(sl); err != nil {
			sl.lost = err
		}
		<-sl.busy
		// A seed may have arrived in between. If another caller has the slot, it settles the seed.
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

// takeOwed returns the seed owed to a running interpreter. The caller must make sure that the
// interpreter takes it first.
func (sl *slot) takeOwed() *Seed {
	if sl.proc == nil || !sl.proc.alive() {
		return nil // a newly started interpreter shares no state with siblings
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

// settle reseeds the interpreter if a seed is owed. If this fails, it ends the interpreter: losing
// the state is better than sharing a random state. The caller must hold the slot.
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

// unseeded returns the error for an interpreter that was ended because it did not take its clone's
// seed.
func (sl *slot) unseeded(cause error) error {
	return fmt.Errorf("reseed %s (ended, its state is lost): %w", sl.lang.Name, cause)
}

// takeLost returns once why the interpreter was ended during its reseed.
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

// eval evaluates code. If seed is not nil, the interpreter takes it first, in the same message:
// each message that wakes it costs a clone's first evaluation two task switches. eval fails if the
// interpreter did not take the seed.
func (sl *slot) eval(ctx context.Context, code Code, limit time.Duration, seed *Seed) (res Result, err error) {
	p := sl.proc
	a, err := p.call(ctx, request{Op: "eval", Code: code.Text, Env: code.Env, MaxResult: maxResult,
		Seed: seed.words()}, limit)
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

// Seed makes the interpreters of a clone differ from its siblings'.
type Seed struct {
	Entropy []byte            // of this clone only
	Env     map[string]string // set in the interpreter's environment
	Info    map[string]any    // argument of the program's own reseed hooks
}

// words returns the form for drivers. It returns nil for a nil seed.
func (s *Seed) words() *seedWords {
	if s == nil {
		return nil
	}
	return &seedWords{Entropy: hex.EncodeToString(s.Entropy), Env: s.Env, Info: s.Info}
}

// Reseeded is the result of reseeding one interpreter.
type Reseeded struct {
	Language string        // Name of its Language
	What     []string      // generators and hooks that took the seed
	Later    bool          // the interpreter takes the seed later, before it runs other code
	Err      error         // reason why the reseed failed, fully or in part
	Took     time.Duration // time spent on this interpreter
}

// Reseed reseeds all live interpreters. An interpreter that may run code without a request is
// reseeded immediately; if it does not answer, it is ended. An idle interpreter gets its seed just
// before the next request, so a clone without a use for the interpreter does not wake it: that
// would cost a wake-up, and a private page for each page Python writes. A busy interpreter, in the
// clone of a running guest, gets its seed after its evaluation.
func (s *Set) Reseed(ctx context.Context, seed Seed) []Reseeded {
	ctx, stop := s.outlive(ctx)
	defer stop()
	var out []Reseeded
	for _, name := range s.names {
		began := time.Now()
		sl := s.slots[name]
		sl.owe(&seed)
		if !sl.tryAcquire() {
			// The holder of the slot takes the seed when it releases the slot.
			out = append(out, Reseeded{Language: name, Later: true, Took: time.Since(began)})
			continue
		}
		if sl.proc != nil && sl.proc.alive() && sl.proc.isIdle() {
			<-sl.busy // the seed stays owed
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

// Quiesce makes live interpreters collect garbage and become idle.
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

// Stop ends all interpreters. The next use starts them again.
func (s *Set) Stop() {
	for _, name := range s.names {
		sl, err := s.acquire(context.Background(), name)
		if err == nil {
			sl.drop()
			s.release(sl)
		}
	}
}

// Close ends all interpreters and evaluations, including evaluations without a caller.
func (s *Set) Close() {
	s.close()
	s.Stop()
}
