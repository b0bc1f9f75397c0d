package drain

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Mode is the treatment of running sandboxes.
type Mode string

// The modes.
const (
	ModePause Mode = "pause" // pause each with its memory
	ModeWait  Mode = "wait"  // wait until each has ended or is paused
)

// Pause pauses a sandbox with its memory.
type Pause func(ctx context.Context, id string, opt sandbox.PauseOptions) (sandbox.Info, error)

// Config configures a Drain.
type Config struct {
	Path  string                // the file of the order; empty keeps it in memory only
	List  func() []sandbox.Info // all sandboxes
	Pause Pause                 // nil if sandboxes cannot be paused
	Acts  sandbox.Acts          // receives each pause; may be nil
	Now   func() time.Time      // wall clock; nil means time.Now
	Log   *slog.Logger          // nil discards messages
	// Changed is called when a drain has begun or ended. It may be nil.
	Changed func()
}

// Drain is the state of one daemon. Its methods are safe for concurrent use.
type Drain struct {
	cfg  Config
	wake chan struct{} // has a value when the order changed

	// turn is held while the order changes and its file is written. It is taken before mu.
	turn sync.Mutex

	mu     sync.Mutex // guards the fields below; taken last, and never held across I/O
	order  *Order     // nil without a drain
	coming int        // requests in progress that may make sandboxes
	spared map[string]int
	failed map[string]failure // by sandbox
}

// failure is a pause that failed.
type failure struct {
	text  string
	again time.Time // when it is tried again
}

// Open reads the order of an earlier daemon. An unreadable file counts as an order to wait: it
// refuses new sandboxes, changes no running one, and can be cancelled.
func Open(c Config) *Drain {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	d := &Drain{cfg: c, wake: make(chan struct{}, 1), spared: map[string]int{}, failed: map[string]failure{}}
	order, err := readOrder(c.Path)
	if err != nil {
		c.Log.Error("the order to drain cannot be read: new sandboxes are refused until the drain is cancelled",
			"path", c.Path, "err", err)
		order = &Order{Mode: ModeWait, Since: c.Now().UTC()}
	}
	if order != nil {
		c.Log.Warn("the daemon is being drained, as ordered before it started", "mode", order.Mode, "since", order.Since)
	}
	d.order = order
	return d
}

// Start orders a drain, for ever or until the daemon restarts. If one is on, it changes the mode, and
// may turn one until the restart into one for ever, but not the reverse.
func (d *Drain) Start(m Mode, untilRestart bool) error {
	if m != ModePause && m != ModeWait {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "mode is %q, want pause or wait", sandbox.Clip(string(m)))
	}
	d.turn.Lock()
	defer d.turn.Unlock()
	was := d.now()
	order := Order{Mode: m, Since: d.cfg.Now().UTC(), UntilRestart: untilRestart}
	if was != nil {
		order.Since = was.Since
		order.UntilRestart = untilRestart && was.UntilRestart
	}
	if was != nil && *was == order {
		return nil
	}
	if err := writeOrder(d.cfg.Path, order); err != nil {
		return sandbox.StoreError(err)
	}
	d.set(&order)
	d.cfg.Log.Info("draining", "mode", m, "until_restart", order.UntilRestart)
	return nil
}

// Cancel ends the drain. Paused sandboxes stay paused. Without a drain it has no effect.
func (d *Drain) Cancel() error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if d.now() == nil {
		return nil
	}
	if err := removeOrder(d.cfg.Path); err != nil {
		return sandbox.StoreError(err)
	}
	d.set(nil)
	d.cfg.Log.Info("the drain is cancelled")
	return nil
}

// now returns a copy of the order, or nil.
func (d *Drain) now() *Order {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.order == nil {
		return nil
	}
	o := *d.order
	return &o
}

func (d *Drain) set(o *Order) {
	d.mu.Lock()
	d.order = o
	clear(d.failed)
	d.mu.Unlock()
	if d.cfg.Changed != nil {
		d.cfg.Changed()
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Enter admits a request that may make or resume a sandbox. It returns ErrDraining during a drain.
// The caller must call leave when the sandbox is listed or was not made.
func (d *Drain) Enter() (leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.order != nil {
		return nil, Refusal()
	}
	d.coming++
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.coming--
	}), nil
}

// On reports whether a drain is on.
func (d *Drain) On() bool { return d.now() != nil }

// Refusal returns the error of a refused request.
func Refusal() error {
	return sandbox.Errorf(sandbox.ErrDraining, "", "the daemon is being drained: it takes no new sandboxes")
}

// Spare makes a drain wait for a sandbox instead of pausing it. A build uses it for its sandbox.
func (d *Drain) Spare(id string) (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spared[id]++
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.spared[id]--; d.spared[id] == 0 {
			delete(d.spared, id)
		}
	})
}

// Status is the progress of a drain.
type Status struct {
	Order  *Order // nil without a drain
	Coming int    // requests in progress that may make sandboxes
	Paused int    // sandboxes without a VM that can be resumed
	Left   []Left // sandboxes with a VM, by ID
}

// Left is a sandbox with a VM.
type Left struct {
	ID     string         // of the sandbox
	Owner  string         // its tenant; empty for the operator
	Status sandbox.Status // its state
	Error  string         // why its last pause failed; empty if all worked
}

// Empty reports whether no sandbox has a VM or may get one.
func (s Status) Empty() bool { return len(s.Left) == 0 && s.Coming == 0 }

// Status returns the progress.
func (d *Drain) Status() Status {
	d.mu.Lock() // before the list is read: a request that left has listed its sandbox
	s := Status{Coming: d.coming}
	if d.order != nil {
		o := *d.order
		s.Order = &o
	}
	failed := maps.Clone(d.failed)
	d.mu.Unlock()
	for _, i := range d.cfg.List() {
		switch i.Status {
		case sandbox.StatusPaused:
			s.Paused++
		case sandbox.StatusFailed:
		default:
			s.Left = append(s.Left, Left{ID: i.ID, Owner: i.Owner, Status: i.Status, Error: failed[i.ID].text})
		}
	}
	slices.SortFunc(s.Left, func(a, b Left) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	return s
}
