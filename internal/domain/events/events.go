package events

import (
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/labels"
)

// Event is one recorded event.
type Event struct {
	ID        uint64 // from the counter of the reader's view
	Time      time.Time
	Kind      string // such as sandbox.EventReady
	Sandbox   string
	Snapshot  string
	Owner     string            // tenant of the object; empty for the operator
	Principal string            // caller; empty if there was no caller or it is unknown
	Labels    map[string]string // of the sandbox or snapshot, at that time
	Detail    map[string]string
}

// KindGap replaces events that a reader asked for but the list has dropped. Its ID is the ID of the last of them;
// Detail holds the ID after which the reader asked.
const KindGap = "gap"

// Now, used as an ID, means the last event.
const Now = math.MaxUint64

// ErrSlow ends a reader that was too slow for the list.
var ErrSlow = errors.New("the reader was too slow: events came faster than it took them")

// ErrClosed ends readers when the daemon stops.
var ErrClosed = errors.New("the daemon stops")

// Limits of the number of events in a Log.
const (
	DefaultRoom = 8192 // of the operator
	TenantRoom  = 1024 // of a tenant
	// maxRings limits the tenants with events; beyond it, the tenant idle longest loses its events.
	maxRings = 256
)

// Limits of the memory for events in a Log.
const (
	operatorBytes = 8 << 20
	tenantBytes   = 1 << 20 // per tenant
	// tenantsBytes is for all tenants; beyond it, the tenant idle longest loses its events.
	tenantsBytes = 128 << 20
)

// Log keeps the last events of each owner. Its methods are safe for concurrent use.
type Log struct {
	now        func() time.Time
	room       int    // of the operator's ring
	tenantRoom int    // of each tenant's ring
	base       uint64 // before the first ID of each counter

	mu     sync.Mutex // guards the fields below; taken last, held briefly
	rings  map[string]*ring
	next   uint64 // next ID of the operator's counter
	gone   uint64 // highest operator ID of a dropped event
	bytes  int    // of the tenants' events
	added  signal // sent for every event
	closed bool
}

// New returns an empty Log. The first event's ID is last+1. room is the number of events kept for each owner; 0
// means DefaultRoom and TenantRoom.
func New(last uint64, room int, now func() time.Time) *Log {
	l := &Log{now: now, room: room, tenantRoom: room, base: last, next: last + 1, rings: map[string]*ring{},
		added: newSignal()}
	if room <= 0 {
		l.room, l.tenantRoom = DefaultRoom, TenantRoom
	}
	return l
}

// Add sets an event's ID and, if it is zero, its time. It never waits for a reader.
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

// ringLocked returns an owner's ring.
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

// makeRoomLocked drops the events of the tenant idle longest, until at most maxRings tenants have events and
// their bytes are within the limit. The tenants' counters stay.
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

// idleLocked returns the ring of the tenant idle longest, and the number of tenants with events.
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

// Limits of an event, in bytes and in details.
const (
	maxName    = 256
	maxDetail  = 2000
	maxDetails = 32
)

// clipped returns a copy of an event with its texts cut to their limits, because the list keeps thousands of
// events.
func clipped(e Event) Event {
	for _, s := range []*string{&e.Kind, &e.Sandbox, &e.Snapshot, &e.Owner, &e.Principal} {
		*s = guesttext.Clip(*s, maxName)
	}
	if e.Labels = maps.Clone(e.Labels); labels.Check(e.Labels) != nil {
		e.Labels = nil
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
