package interp

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/agent/defaults"
	"github.com/forkd/forkd/internal/agent/procgroup"
	"github.com/forkd/forkd/internal/agent/reap"
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
}

// slot serialises what is asked of one language's interpreter.
type slot struct {
	lang Language
	busy chan struct{} // holds one token while somebody uses the interpreter

	mu   sync.Mutex // guards proc against readers that do not hold busy
	proc *proc
}

// NewSet makes a set in which no interpreter is started yet.
func NewSet(r *reap.Reaper, g *procgroup.Groups, rec *defaults.Record, langs ...Language) *Set {
	s := &Set{reaper: r, groups: g, rec: rec, slots: map[string]*slot{}}
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
	Result, Stdout, Stderr, Error, Traceback string
	ExitCode                                 int
	StateLost, TimedOut                      bool
	Dropped                                  int64
}

// Info describes a live interpreter.
type Info struct {
	Language string
	Pid      int
	Version  string
	Modules  map[string]string
}

// Eval runs code and waits for its result at most limit; the interpreter is
// started if there is none. What goes wrong in the code is in the result.
func (s *Set) Eval(ctx context.Context, language, code string, limit time.Duration) (Result, error) {
	sl, err := s.acquire(ctx, language)
	if err != nil {
		return Result{}, err
	}
	defer sl.release()
	if err := s.ensure(ctx, sl); err != nil {
		return Result{}, err
	}
	return sl.eval(ctx, code, limit), nil
}

// Start starts the language's interpreter if it does not run.
func (s *Set) Start(ctx context.Context, language string) error {
	sl, err := s.acquire(ctx, language)
	if err != nil {
		return err
	}
	defer sl.release()
	return s.ensure(ctx, sl)
}

func (s *Set) acquire(ctx context.Context, language string) (*slot, error) {
	sl := s.slots[language]
	if sl == nil {
		return nil, &UnknownLanguageError{language, s.names}
	}
	select {
	case sl.busy <- struct{}{}:
		return sl, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the %s interpreter: %w", language, ctx.Err())
	}
}

func (sl *slot) release() { <-sl.busy }

func (s *Set) ensure(ctx context.Context, sl *slot) error {
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

func (sl *slot) eval(ctx context.Context, code string, limit time.Duration) Result {
	p := sl.proc
	a, err := p.call(ctx, request{Op: "eval", Code: code, MaxResult: maxResult}, limit)
	var res Result
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
		return res
	}
	res.Result, res.Error, res.Traceback, res.ExitCode = a.Result, a.Error, a.Traceback, int(int32(a.ExitCode))
	return res
}

// Seed is what makes the interpreters of a clone its own.
type Seed struct {
	Entropy []byte
	Env     map[string]string
	Info    map[string]any
}

// Reseeded tells what one interpreter did with a seed.
type Reseeded struct {
	Language string
	What     []string
	Err      error
	Took     time.Duration
}

// Reseed reseeds every live interpreter. One that does not answer is ended:
// better no state than a shared random state.
func (s *Set) Reseed(ctx context.Context, seed Seed) []Reseeded {
	var out []Reseeded
	for _, name := range s.names {
		began := time.Now()
		sl, err := s.acquire(ctx, name)
		if err != nil {
			out = append(out, Reseeded{Language: name, Err: err})
			continue
		}
		if sl.proc != nil {
			what, err := sl.reseed(ctx, seed)
			out = append(out, Reseeded{name, what, err, time.Since(began)})
		}
		sl.release()
	}
	return out
}

func (sl *slot) reseed(ctx context.Context, seed Seed) ([]string, error) {
	if !sl.proc.alive() {
		sl.drop()
		return nil, nil
	}
	req := request{Op: "reseed", Entropy: hex.EncodeToString(seed.Entropy), Env: seed.Env, Info: seed.Info}
	a, err := sl.proc.call(ctx, req, reseedLimit)
	if err != nil {
		sl.drop()
		return nil, fmt.Errorf("reseed %s (ended, its state is lost): %w", sl.lang.Name, err)
	}
	if a.Error != "" {
		return a.Reseeded, errors.New(a.Error)
	}
	return a.Reseeded, nil
}

// Quiesce makes live interpreters collect garbage and hold still.
func (s *Set) Quiesce(ctx context.Context) error {
	var errs []error
	for _, name := range s.names {
		sl, err := s.acquire(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if sl.proc != nil && sl.proc.alive() {
			if _, err := sl.proc.call(ctx, request{Op: "quiesce"}, quiesceLimit); err != nil {
				sl.drop()
				errs = append(errs, fmt.Errorf("quiesce %s: %w", name, err))
			}
		}
		sl.release()
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
			sl.release()
		}
	}
}
