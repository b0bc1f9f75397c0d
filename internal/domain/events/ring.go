package events

import "sort"

// ring holds the last events of one owner. The owner's event number n, counted from 1, has the ID base+n in the
// owner's counter. The ID stored in kept is the operator's. The Log's mutex guards the ring.
type ring struct {
	room  int     // events
	most  int     // bytes
	kept  []Event // oldest first
	bytes int     // of kept
	count uint64  // events ever added
	added signal
}

func (r *ring) slot(n uint64) *Event { return &r.kept[n-r.first()] }

// first returns the number of the oldest kept event, or of the next event if the ring is empty.
func (r *ring) first() uint64 { return r.count - uint64(len(r.kept)) + 1 }

// newest returns the operator's ID of the newest kept event, or 0.
func (r *ring) newest() uint64 {
	if len(r.kept) == 0 {
		return 0
	}
	return r.slot(r.count).ID
}

// add keeps an event, and drops as many of the oldest as necessary. It returns the operator's ID of the last
// dropped event, or 0.
func (r *ring) add(e Event) (gone uint64) {
	n := sizeOf(e)
	for len(r.kept) > 0 && (len(r.kept) >= r.room || r.bytes+n > r.most) {
		oldest := &r.kept[0]
		gone = oldest.ID
		r.bytes -= sizeOf(*oldest)
		*oldest = Event{}
		r.kept = r.kept[1:] // append copies the remaining events now and then
	}
	r.kept = append(r.kept, e)
	r.bytes += n
	r.count++
	return gone
}

// sizeOf estimates the memory of an event.
func sizeOf(e Event) int {
	const event, entry = 400, 64 // includes the maps; for each detail and label besides its texts
	n := event + len(e.Kind) + len(e.Sandbox) + len(e.Snapshot) + len(e.Owner) + len(e.Principal)
	for _, texts := range []map[string]string{e.Detail, e.Labels} {
		for key, v := range texts {
			n += entry + len(key) + len(v)
		}
	}
	return n
}

// clear drops all events. It returns the operator's ID of the last one.
func (r *ring) clear() (gone uint64) {
	gone = r.newest()
	r.kept, r.bytes = nil, 0
	return gone
}

// from returns the number of the oldest kept event whose operator's ID is id or higher.
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
