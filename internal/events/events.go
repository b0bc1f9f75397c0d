package events

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/guesttext"
)

// Event is something that happened.
type Event struct {
	ID        uint64
	Time      time.Time
	Kind      string // sandbox.EventReady and the others
	Sandbox   string
	Snapshot  string
	Owner     string // tenant of that; empty: the operator
	Principal string // who asked for it; empty: nobody, or the daemon does not know
	Detail    map[string]string
}

// KindGap stands for events that a reader asked for and the list has no more. Its ID is that of the
// last of them; Detail says after which the reader asked.
const KindGap = "gap"

// Now, in place of an ID, stands for the last event that there is.
const Now = math.MaxUint64

// ErrSlow ends a reader that the list has overtaken.
var ErrSlow = errors.New("the reader was too slow: events came faster than it took them")

// ErrClosed ends readers when the daemon does.
var ErrClosed = errors.New("the daemon stops")

// DefaultRoom is how many events the list keeps.
const DefaultRoom = 8192

// Log is the list. Its methods are safe for concurrent use.
type Log struct {
	now func() time.Time

	mu      sync.Mutex // guards what follows; taken last, and held for moments
	ring    []Event
	first   uint64        // the ID of the oldest that is still there
	next    uint64        // the ID of the next
	more    chan struct{} // closed when there is another
	closed  bool
	readers int
}

// New makes an empty list, whose first event has the ID after last. room 0 is DefaultRoom.
func New(last uint64, room int, now func() time.Time) *Log {
	if room <= 0 {
		room = DefaultRoom
	}
	return &Log{now: now, ring: make([]Event, room), first: last + 1, next: last + 1, more: make(chan struct{})}
}

// Add gives an event its ID and, if it has none, its time. It does not wait for anybody.
func (l *Log) Add(e Event) {
	e = clipped(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	e.ID, e.Time = l.next, e.Time.UTC()
	room := uint64(len(l.ring))
	l.ring[e.ID%room] = e
	l.next++
	l.first = max(l.first, l.next-min(l.next, room))
	if l.readers > 0 {
		close(l.more)
		l.more = make(chan struct{})
	}
}

// Bounds of an event, in bytes and in details.
const (
	maxName    = 256
	maxDetail  = 2000
	maxDetails = 32
)

// clipped returns a copy of an event with bounded texts: the list keeps thousands of events.
func clipped(e Event) Event {
	for _, s := range []*string{&e.Kind, &e.Sandbox, &e.Snapshot, &e.Owner, &e.Principal} {
		*s = guesttext.Clip(*s, maxName)
	}
	if e.Detail == nil {
		return e
	}
	d := make(map[string]string, min(len(e.Detail), maxDetails))
	for _, key := range slices.Sorted(maps.Keys(e.Detail)) {
		if len(d) == maxDetails {
			break
		}
		d[guesttext.Clip(key, maxName)] = guesttext.ClipLines(e.Detail[key], maxDetail)
	}
	e.Detail = d
	return e
}

// Close ends all readers.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.more)
	}
}

// Last is the ID of the last event.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - 1
}

// batch is how many events a reader takes at once.
const batch = 64

// Follow calls fn with the events after that ID, and goes on with those that come, until fn fails,
// ctx ends, the log is closed, or the reader is too slow (ErrSlow). after 0: all that there are;
// Now: none of them. An event's Detail is everybody's and must not be changed.
func (l *Log) Follow(ctx context.Context, after uint64, fn func(Event) error) error {
	at, gap := l.begin(after)
	defer l.leave()
	if gap != nil {
		if err := fn(*gap); err != nil {
			return err
		}
	}
	buf := make([]Event, 0, batch)
	for {
		var more <-chan struct{}
		var err error
		if buf, more, err = l.take(buf[:0], at); err != nil {
			return err
		}
		for _, e := range buf {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := fn(e); err != nil {
				return err
			}
			at = e.ID + 1
		}
		if len(buf) > 0 {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// begin is the ID that a reader begins at, and what it is told to be missing.
func (l *Log) begin(after uint64) (at uint64, gap *Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers++
	switch {
	case after == Now:
		return l.next, nil
	case after == 0:
		return l.first, nil
	case after+1 < l.first: // older than what is there
		return l.first, l.gap(after, l.first-1)
	case after >= l.next: // of another daemon's data: no ID so high was given
		return l.next, l.gap(after, l.next-1)
	}
	return after + 1, nil
}

func (l *Log) gap(after, last uint64) *Event {
	return &Event{ID: last, Time: l.now().UTC(), Kind: KindGap, Detail: gapDetail(after, last)}
}

func (l *Log) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers--
}

// take appends the events from an ID on, or returns what is closed when there is one.
func (l *Log) take(buf []Event, at uint64) ([]Event, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at < l.first {
		return nil, nil, ErrSlow
	}
	for id := at; id < l.next && len(buf) < batch; id++ {
		buf = append(buf, l.ring[id%uint64(len(l.ring))])
	}
	if len(buf) == 0 && l.closed {
		return nil, nil, ErrClosed
	}
	return buf, l.more, nil
}
