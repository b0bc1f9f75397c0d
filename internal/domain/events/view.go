package events

import (
	"context"
)

// View reads events. A tenant's view has the tenant's events with the tenant's own counter. The operator's view
// has the events of all owners, merged in order, with the operator's counter. A View's counter reveals nothing
// about other tenants.
type View struct {
	log    *Log
	tenant string // empty for all owners
}

// Of returns the view of a tenant. If the tenant is empty, it is the operator's view.
func (l *Log) Of(tenant string) View { return View{l, tenant} }

// Last returns the ID of the last event in the operator's counter.
func (l *Log) Last() uint64 { return l.Of("").Last() }

// Follow follows the operator's view.
func (l *Log) Follow(ctx context.Context, after uint64, fn func(Event) error) error {
	return l.Of("").Follow(ctx, after, fn)
}

// source supplies a reader's events. The Log's mutex is held during all calls.
type source interface {
	// last returns the ID of the last event.
	last() uint64
	// begin returns the first ID to read. It also returns a gap if events between after and that ID are missing.
	begin(after uint64) (at uint64, gap *Event)
	// take appends events from an ID on. It returns ErrSlow if one of them was dropped.
	take(buf []Event, at uint64) ([]Event, error)
	// signal is sent at the next event.
	signal() *signal
}

func (v View) sourceLocked() source {
	if v.tenant == "" {
		return &merged{log: v.log}
	}
	return &single{log: v.log, ring: v.log.ringLocked(v.tenant)}
}

// Last returns the ID of the last event.
func (v View) Last() uint64 {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	return v.sourceLocked().last()
}

// batch and batchBytes limit the events that a reader takes in one step, except that the last event may exceed
// the bytes. If the log drops these events meanwhile, only the reader still holds them.
const (
	batch      = 64
	batchBytes = 64 << 10
)

// portion counts the events taken by a reader.
type portion struct{ events, bytes int }

// full reports whether a limit is reached.
func (p portion) full() bool { return p.events >= batch || p.bytes >= batchBytes }

func (p *portion) add(e Event) {
	p.events++
	p.bytes += sizeOf(e)
}

// Follow calls fn with the events after that ID and then with new ones. It stops when fn fails, ctx ends, the log
// is closed or the reader is too slow (ErrSlow). An after of 0 means all kept events, and Now means new events
// only. An event's Detail is shared and must not be changed.
func (v View) Follow(ctx context.Context, after uint64, fn func(Event) error) error {
	src, at, gap := v.begin(after)
	if gap != nil {
		if err := fn(*gap); err != nil {
			return err
		}
	}
	buf := make([]Event, 0, batch)
	for {
		var more <-chan struct{}
		var err error
		clear(buf)
		if buf, more, err = v.take(src, buf[:0], at); err != nil {
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

func (v View) begin(after uint64) (src source, at uint64, gap *Event) {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	src = v.sourceLocked()
	if after == Now {
		return src, src.last() + 1, nil
	}
	at, gap = src.begin(after)
	return src, at, gap
}

// take returns events, or a channel that is closed when there is a new event.
func (v View) take(src source, buf []Event, at uint64) ([]Event, <-chan struct{}, error) {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	buf, err := src.take(buf, at)
	switch {
	case err != nil || len(buf) > 0:
		return buf, nil, err
	case v.log.closed:
		return nil, nil, ErrClosed
	}
	return buf, src.signal().next(), nil
}

// gap returns the event that replaces missing events. A reader resumes after id; last is the last missing ID.
func (l *Log) gap(id, after, last uint64) *Event {
	return &Event{ID: id, Time: l.now().UTC(), Kind: KindGap, Detail: gapDetail(after, last)}
}

// single reads one tenant's ring.
type single struct {
	log  *Log
	ring *ring
}

func (s *single) last() uint64    { return s.log.base + s.ring.count }
func (s *single) first() uint64   { return s.log.base + s.ring.first() }
func (s *single) signal() *signal { return &s.ring.added }

func (s *single) begin(after uint64) (at uint64, gap *Event) {
	first, last := s.first(), s.last()
	switch {
	case after == 0:
		return first, nil
	case after+1 < first:
		return first, s.log.gap(first-1, after, first-1)
	case after > last: // ID of another daemon or another view
		return last + 1, s.log.gap(last, after, last)
	}
	return after + 1, nil
}

func (s *single) take(buf []Event, at uint64) ([]Event, error) {
	if at < s.first() {
		return nil, ErrSlow
	}
	for taken := (portion{}); at <= s.last() && !taken.full(); at++ {
		e := *s.ring.slot(at - s.log.base)
		e.ID = at
		buf = append(buf, e)
		taken.add(e)
	}
	return buf, nil
}

// merged reads all rings in order of the operator's IDs.
type merged struct {
	log  *Log
	gone uint64 // highest ID dropped before the reader began
}

func (m *merged) last() uint64    { return m.log.next - 1 }
func (m *merged) signal() *signal { return &m.log.added }

func (m *merged) begin(after uint64) (at uint64, gap *Event) {
	l := m.log
	m.gone = l.gone
	switch {
	case after == 0:
		return l.base + 1, nil
	case after >= l.next: // ID of another daemon
		return l.next, l.gap(l.next-1, after, l.next-1)
	case after < max(l.gone, l.base):
		at = m.oldest(after + 1)
		return at, l.gap(at-1, after, max(l.gone, l.base))
	}
	return after + 1, nil
}

// oldest returns the lowest kept ID that is at least from. If no kept ID matches, it returns the next ID.
func (m *merged) oldest(from uint64) uint64 {
	id := m.log.next
	for _, r := range m.log.rings {
		if n := r.from(from); n <= r.count {
			id = min(id, r.slot(n).ID)
		}
	}
	return id
}

func (m *merged) take(buf []Event, at uint64) ([]Event, error) {
	if m.log.gone >= at && m.log.gone > m.gone {
		return nil, ErrSlow
	}
	type cursor struct {
		ring *ring
		n    uint64
	}
	var rings []cursor
	for _, r := range m.log.rings {
		if n := r.from(at); n <= r.count {
			rings = append(rings, cursor{r, n})
		}
	}
	for taken := (portion{}); !taken.full() && len(rings) > 0; {
		low := 0
		for i, c := range rings {
			if c.ring.slot(c.n).ID < rings[low].ring.slot(rings[low].n).ID {
				low = i
			}
		}
		c := &rings[low]
		e := *c.ring.slot(c.n)
		buf = append(buf, e)
		taken.add(e)
		if c.n++; c.n > c.ring.count {
			rings = append(rings[:low], rings[low+1:]...)
		}
	}
	return buf, nil
}
