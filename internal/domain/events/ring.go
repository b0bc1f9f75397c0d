package events

import "sort"

// ring holds the last events of one owner. Event number n of the owner, from 1 on, has the ID base+n by
// the owner's counter; the ID in kept is the operator's. The Log's mutex guards it.
type ring struct {
	room  int     // events
	most  int     // bytes
	kept  []Event // the oldest first
	bytes int     // of kept
	count uint64  // events that were ever added
	added signal
}

func (r *ring) slot(n uint64) *Event { return &r.kept[n-r.first()] }

// first returns the number of the oldest event that is kept, or of the next event.
func (r *ring) first() uint64 { return r.count - uint64(len(r.kept)) + 1 }

// newest returns the operator's ID of the newest event that is kept; 0 if there is none.
func (r *ring) newest() uint64 {
	if len(r.kept) == 0 {
		return 0
	}
	return r.slot(r.count).ID
}

// add keeps an event, in place of as many of the oldest as it needs. It returns the operator's ID of the last event that
// it drops; 0 if it drops none.
func (r *ring) add(e Event) (gone uint64) {
	n := sizeOf(e)
	for len(r.kept) > 0 && (len(r.kept) >= r.room || r.bytes+n > r.most) {
		oldest := &r.kept[0]
		gone = oldest.ID
		r.bytes -= sizeOf(*oldest)
		*oldest = Event{}
		r.kept = r.kept[1:] // append moves the others once in a while
	}
	r.kept = append(r.kept, e)
	r.bytes += n
	r.count++
	return gone
}

// sizeOf returns the memory of an event, about.
func sizeOf(e Event) int {
	const event, entry = 400, 64 // with the map, and beside the texts of an entry
	n := event + len(e.Kind) + len(e.Sandbox) + len(e.Snapshot) + len(e.Owner) + len(e.Principal)
	for key, v := range e.Detail {
		n += entry + len(key) + len(v)
	}
	return n
}

// clear drops all events. It returns the operator's ID of the last one.
func (r *ring) clear() (gone uint64) {
	gone = r.newest()
	r.kept, r.bytes = nil, 0
	return gone
}

// from returns the number of the oldest event that is kept with that ID of the operator's or a higher one.
func (r *ring) from(id uint64) uint64 {
	if r.newest() < id {
		return r.count + 1
	}
	first := r.first()
	return first + uint64(sort.Search(len(r.kept), func(i int) bool { return r.slot(first+uint64(i)).ID >= id }))
}

// signal wakes readers. The Log's mutex guards it.
type signal struct {
	c       chan struct{} // closed at the next send
	waiting bool          // a reader has c
	closed  bool
}

func newSignal() signal { return signal{c: make(chan struct{})} }

// next returns a channel that the next send closes.
func (s *signal) next() <-chan struct{} {
	s.waiting = true
	return s.c
}

func (s *signal) send() {
	if s.waiting && !s.closed {
		close(s.c)
		s.c, s.waiting = make(chan struct{}), false
	}
}

func (s *signal) close() {
	if !s.closed {
		s.closed = true
		close(s.c)
	}
}
