package audit

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults and bounds of a log.
const (
	DefaultMaxBytes = 16 << 20
	DefaultKeep     = 9
	queueLength     = 4096
	settleEvery     = time.Second
)

// Config configures a Log.
type Config struct {
	Path     string
	MaxBytes int64 // size at which the file is rolled over; default DefaultMaxBytes
	Keep     int   // rolled files to keep; the oldest are removed. Default DefaultKeep
	// Opened holds additional fields for each daemon's first line.
	Opened Entry
	Now    func() time.Time
	Log    *slog.Logger // for messages about the log itself

	chain string                            // chain's name; empty for the first one
	fresh func(chain string)                // called if a chain has no line yet; may be nil
	open  func(path string) (handle, error) // for tests
	queue int
	tick  <-chan time.Time
}

// complete sets defaults.
func (c Config) complete() Config {
	if c.MaxBytes <= 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.Keep <= 0 {
		c.Keep = DefaultKeep
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.open == nil {
		c.open = openAppend
	}
	if c.queue == 0 {
		c.queue = queueLength
	}
	return c
}

// Stats counts entries since the log was opened.
type Stats struct {
	Written uint64 // lines, including the log's own
	Lost    uint64 // entries
	Queued  int    // entries waiting for the disk
}

// chainLog writes one chain. Its methods are safe for concurrent use. Add never waits.
type chainLog struct {
	cfg   Config
	w     *writer // owned by the goroutine; nil until the file is open
	queue chan *Entry
	poke  chan struct{} // makes the goroutine check the file immediately
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	written, lost atomic.Uint64
	untold        atomic.Uint64 // lost, but not yet counted in a line
	durable       atomic.Pointer[Head]
	failing       bool // owned by the goroutine
}

// openChain opens a chain and starts to write. Close ends it.
func openChain(c Config) (*chainLog, error) {
	l := newChain(c.complete())
	if err := l.begin(); err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

// startChain is openChain without waiting for the disk. Entries wait in the queue until the file is open.
func startChain(c Config) *chainLog {
	l := newChain(c.complete())
	go l.run()
	return l
}

func newChain(c Config) *chainLog {
	return &chainLog{cfg: c, queue: make(chan *Entry, c.queue), poke: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{})}
}

// begin opens the file. The first chain records that it was opened.
func (l *chainLog) begin() error {
	w, err := openWriter(l.cfg)
	if err != nil {
		return err
	}
	if l.cfg.chain == "" {
		opened := l.cfg.Opened
		opened.Time, opened.Action, opened.Result = l.cfg.Now().UTC(), ActionOpened, OK
		w.notes = append(w.notes, opened)
	}
	if w.head.Seq == 0 && l.cfg.fresh != nil {
		l.cfg.fresh(l.cfg.chain)
	}
	l.cfg.Log.Info("audit log opened", "file", l.cfg.Path, "head", w.head.String())
	l.w = w
	return nil
}

// Add queues an entry for writing. If the queue is full because the disk is slow, the entry is lost and counted.
func (l *chainLog) Add(e Entry) {
	if e.Time.IsZero() {
		e.Time = l.cfg.Now()
	}
	e.Time = e.Time.UTC()
	select {
	case <-l.stop:
		l.lose(1)
		return
	default:
	}
	select {
	case l.queue <- e.clipped():
	default:
		l.lose(1)
	}
}

func (l *chainLog) lose(n uint64) {
	l.lost.Add(n)
	l.untold.Add(n)
}

// Head returns the last durable line. Its Seq is 0 if there is none.
func (l *chainLog) Head() Head {
	h := Head{}
	if at := l.durable.Load(); at != nil {
		h = *at
	}
	h.Chain = l.cfg.chain
	return h
}

// sync makes the written lines durable.
func (l *chainLog) sync() error {
	err := l.w.settle()
	saved := l.w.saved
	l.durable.Store(&saved)
	return err
}

// Stats returns the counts of entries.
func (l *chainLog) Stats() Stats { return Stats{l.written.Load(), l.lost.Load(), len(l.queue)} }

// Close writes the queued entries and waits for at most patience, so that a hanging disk cannot block it longer.
func (l *chainLog) Close(patience time.Duration) error {
	l.once.Do(func() { close(l.stop) })
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-l.done:
		return nil
	case <-t.C:
		return errors.New("the audit log's disk does not answer: the last actions are not in it")
	}
}

func (l *chainLog) run() {
	defer close(l.done)
	ticks := l.cfg.tick
	if ticks == nil {
		t := time.NewTicker(settleEvery)
		defer t.Stop()
		ticks = t.C
	}
	l.settle()
	for {
		select {
		case e := <-l.queue:
			l.put(*e)
		case <-ticks:
			l.settle()
		case <-l.poke:
			l.settle()
		case <-l.stop:
			l.finish()
			return
		}
	}
}

// opened reports whether the file is open. It first tries to open the file if it is closed, or if the path now
// refers to another file.
func (l *chainLog) opened() bool {
	if l.w != nil && l.w.moved() {
		l.cfg.Log.Warn("the audit log was moved, removed or replaced, and is opened again", "file", l.cfg.Path)
		l.report(l.w.close())
		l.w = nil
	}
	if l.w == nil {
		l.report(l.begin())
	}
	return l.w != nil
}

// put writes an entry, or counts it as lost.
func (l *chainLog) put(e Entry) {
	if !l.opened() {
		l.lose(1)
		return
	}
	rolled := l.w.rollOver()
	err := l.writeNotes()
	if err == nil {
		err = l.append(e)
	}
	switch {
	case err != nil:
		l.lose(1)
	case l.w.saved.Seq == 0: // from now on a truncation can be detected
		err = l.sync()
	}
	l.report(errors.Join(rolled, err))
}

// append writes a line. The line includes the number of entries lost before it.
func (l *chainLog) append(e Entry) error {
	e.Lost = l.untold.Load()
	before := l.w.head.Seq
	err := l.w.append(e)
	l.written.Add(l.w.head.Seq - before)
	if err == nil {
		l.untold.Add(-e.Lost)
	}
	return err
}

func (l *chainLog) writeNotes() error {
	before := l.w.head.Seq
	err := l.w.writeNotes()
	l.written.Add(l.w.head.Seq - before)
	return err
}

// settle writes entries held back by a full disk, and the head.
func (l *chainLog) settle() {
	if !l.opened() {
		return
	}
	err := l.writeNotes()
	if err == nil && l.untold.Load() > 0 && len(l.queue) == 0 {
		err = l.append(Entry{Time: l.cfg.Now().UTC(), Action: ActionMissing, Result: Failed})
	}
	if err == nil {
		err = l.sync()
	}
	l.report(err)
}

// finish writes the queued entries and the last line.
func (l *chainLog) finish() {
	for len(l.queue) > 0 {
		l.put(*<-l.queue)
	}
	if l.cfg.chain == "" {
		l.put(Entry{Time: l.cfg.Now().UTC(), Action: ActionClosed, Result: OK})
	}
	if l.w == nil {
		return
	}
	l.report(errors.Join(l.sync(), l.w.close()))
	l.cfg.Log.Info("audit log closed", "file", l.cfg.Path, "head", l.w.head.String(), "lost", l.lost.Load())
}

// report logs the first of consecutive errors, and the recovery.
func (l *chainLog) report(err error) {
	switch {
	case err != nil && !l.failing:
		l.failing = true
		l.cfg.Log.Error("the audit log is not whole", "error", err)
	case err == nil && l.failing:
		l.failing = false
		l.cfg.Log.Warn("the audit log is written to again", "lost", l.lost.Load())
	}
}
