package events

import (
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// Event is something that happened.
type Event struct {
	ID        uint64 // by the counter of the view that it is read with
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

// Numbers of events that a Log keeps.
const (
	DefaultRoom = 8192 // of the operator
	TenantRoom  = 1024 // of a tenant
	maxRings    = 256  // tenants with events; the events of the tenant that has been idle longest go
)

// Memory for the events that a Log keeps.
const (
	operatorBytes = 8 << 20
	tenantBytes   = 1 << 20   // of one tenant
	tenantsBytes  = 128 << 20 // of all tenants; the events of the tenant that has been idle longest go
)

// Log keeps the last events of each owner. Its methods are safe for concurrent use.
type Log struct {
	now        func() time.Time
	room       int    // of the operator's ring
	tenantRoom int    // of each tenant's ring
	base       uint64 // precedes the first ID of each counter

	mu     sync.Mutex // guards what follows; taken last, and held for moments
	rings  map[string]*ring
	next   uint64 // the next ID by the operator's counter
	gone   uint64 // the highest ID, by that counter, of the events that were dropped
	bytes  int    // of the tenants' events
	added  signal // of any event
	closed bool
}

// New returns an empty Log. The first event has the ID after last. room is the number of events kept of
// each owner; 0 stands for DefaultRoom and TenantRoom.
func New(last uint64, room int, now func() time.Time) *Log {
	l := &Log{now: now, room: room, tenantRoom: room, base: last, next: last + 1, rings: map[string]*ring{},
		added: newSignal()}
	if room <= 0 {
		l.room, l.tenantRoom = DefaultRoom, TenantRoom
	}
	return l
}

// Add gives an event its ID and, if it has none, its time. It never waits for a reader.
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
	l.next++
	r := l.ringLocked(e.Owner)
	before := r.bytes
	l.gone = max(l.gone, r.add(e))
	if e.Owner != "" {
		l.bytes += r.bytes - before
		if before == 0 || l.bytes > tenantsBytes {
			l.makeRoomLocked()
		}
	}
	r.added.send()
	l.added.send()
}

// ringLocked returns the ring of an owner.
func (l *Log) ringLocked(owner string) *ring {
	r := l.rings[owner]
	if r == nil {
		r = &ring{room: l.tenantRoom, most: tenantBytes, added: newSignal()}
		if owner == "" {
			r.room, r.most = l.room, operatorBytes
		}
		l.rings[owner] = r
	}
	return r
}

// makeRoomLocked drops the events of the tenants that have been idle longest while more than maxRings tenants have some,
// or they have more bytes than all may have. The tenants' counters stay.
func (l *Log) makeRoomLocked() {
	for {
		idle, n := l.idleLocked()
		if n <= 1 || n <= maxRings && l.bytes <= tenantsBytes {
			return
		}
		l.bytes -= idle.bytes
		l.gone = max(l.gone, idle.clear())
	}
}

// idleLocked returns the ring of the tenant that has been idle longest, and the number of tenants with events.
func (l *Log) idleLocked() (idle *ring, n int) {
	for owner, r := range l.rings {
		if owner == "" || len(r.kept) == 0 {
			continue
		}
		if n++; idle == nil || r.newest() < idle.newest() {
			idle = r
		}
	}
	return idle, n
}

// Close ends all readers.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	l.added.close()
	for _, r := range l.rings {
		r.added.close()
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
