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

// Config is what a Log is made of.
type Config struct {
	Path     string
	MaxBytes int64 // beyond which the file is rolled over; default DefaultMaxBytes
	Keep     int   // files that were rolled over and stay; the oldest are removed. Default DefaultKeep
	// Opened is what the first line of each daemon says beside.
	Opened Entry
	Now    func() time.Time
	Log    *slog.Logger // what concerns the log itself

	open  func(path string) (handle, error) // of tests
	queue int
	tick  <-chan time.Time
}

// Stats are what became of entries since the log was opened.
type Stats struct {
	Written uint64 // lines, those of the log itself included
	Lost    uint64 // entries
	Queued  int    // entries that wait for the disk
}

// Log writes entries. Its methods are safe for concurrent use; Add never waits.
type Log struct {
	cfg   Config
	w     *writer // the goroutine's
	queue chan Entry
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	written, lost atomic.Uint64
	untold        atomic.Uint64 // lost, and in no line yet
	failing       bool          // the goroutine's
}

// Open opens a log and starts to write; Close ends it.
func Open(c Config) (*Log, error) {
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
	w, err := openWriter(c)
	if err != nil {
		return nil, err
	}
	opened := c.Opened
	opened.Action, opened.Result = ActionOpened, OK
	w.notes = append(w.notes, opened)
	c.Log.Info("audit log opened", "file", c.Path, "head", w.head.String())
	l := &Log{cfg: c, w: w, queue: make(chan Entry, c.queue), stop: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l, nil
}

// Path is the file that is written to.
func (l *Log) Path() string { return l.cfg.Path }

// Add has an entry written. What does not fit into the queue, since the disk is slow, is lost and counted.
func (l *Log) Add(e Entry) {
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

func (l *Log) lose(n uint64) {
	l.lost.Add(n)
	l.untold.Add(n)
}

// Stats tells what became of entries.
func (l *Log) Stats() Stats { return Stats{l.written.Load(), l.lost.Load(), len(l.queue)} }

// Close writes what there is, and waits for it as long as patience lasts: a disk that hangs is not
// waited for any longer.
func (l *Log) Close(patience time.Duration) error {
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

func (l *Log) run() {
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
			l.put(e)
		case <-ticks:
			l.settle()
		case <-l.stop:
			l.finish()
			return
		}
	}
}

// put writes an entry, or counts it as lost.
func (l *Log) put(e Entry) {
	rolled := l.w.rollOver()
	err := l.writeNotes()
	if err == nil {
		err = l.append(e)
	}
	if err != nil {
		l.lose(1)
	}
	l.report(errors.Join(rolled, err))
}

// append writes a line, with the number of those that were lost before it.
func (l *Log) append(e Entry) error {
	e.Lost = l.untold.Load()
	before := l.w.head.Seq
	err := l.w.append(e)
	l.written.Add(l.w.head.Seq - before)
	if err == nil {
		l.untold.Add(-e.Lost)
	}
	return err
}

func (l *Log) writeNotes() error {
	before := l.w.head.Seq
	err := l.w.writeNotes()
	l.written.Add(l.w.head.Seq - before)
	return err
}

// settle writes what waits for a disk that was full, and the head.
func (l *Log) settle() {
	err := l.writeNotes()
	if err == nil && l.untold.Load() > 0 && len(l.queue) == 0 {
		err = l.append(Entry{Time: l.cfg.Now().UTC(), Action: ActionMissing, Result: Failed})
	}
	if err == nil {
		err = l.w.settle()
	}
	l.report(err)
}

// finish writes what is queued, and the last line.
func (l *Log) finish() {
	for len(l.queue) > 0 {
		l.put(<-l.queue)
	}
	l.put(Entry{Time: l.cfg.Now().UTC(), Action: ActionClosed, Result: OK})
	l.report(l.w.close())
	l.cfg.Log.Info("audit log closed", "file", l.cfg.Path, "head", l.w.head.String(), "lost", l.lost.Load())
}

// report logs the first of a row of errors, and their end.
func (l *Log) report(err error) {
	switch {
	case err != nil && !l.failing:
		l.failing = true
		l.cfg.Log.Error("the audit log is not whole", "error", err)
	case err == nil && l.failing:
		l.failing = false
		l.cfg.Log.Warn("the audit log is written to again", "lost", l.lost.Load())
	}
}
