package procs

import (
	"sync"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// queueBytes and queuePieces limit the queued output of one reader. Readers share the bytes.
const (
	queueBytes  = 1 << 20
	queuePieces = 4096
)

// stallGrace is how long the process waits for a reader with a full queue while others have room.
const stallGrace = time.Second

// hub delivers the events of one process to its readers, in order. Each reader has its own queue. A
// single reader loses no output, as with a pipe: the process waits for it. Of several readers, one
// that stalls loses output. The caller that started the process may be slow: it stalls only if it
// takes no event for stallGrace. Any other reader stalls when the process has waited stallGrace for
// it since its queue was last empty. So no viewer can slow the process down for the others. In a
// clone, output also waits for the first caller.
type hub struct {
	mu   sync.Mutex
	subs map[*subscriber]struct{}
	room chan struct{}         // closed when a queue may have room again; nil if publish does not wait
	kept *backlog              // output for the next subscriber; if nil, output without readers is dropped
	end  *process.ProcessEvent // set once, after the last event
}

// subscriber is one reader. The hub's mu guards its queue.
type subscriber struct {
	queue []*process.ProcessEvent // oldest first
	bytes int                     // of output in queue
	lost  int64                   // bytes dropped since the last event in queue
	ready chan struct{}           // holds a token while queue may have events
	left  bool
	owner bool          // it started the process
	took  time.Time     // when it last took an event, or first found its queue full
	held  time.Duration // how long the process has waited for it since its queue was empty
	stall bool          // the process does not wait for it
	// blocks reports that the process waits for it.
	blocks bool
	// missed is the kept output from before it subscribed. May be nil.
	missed *backlog
}

// subscribe adds a reader for all later events. After the end it also returns the end event, and
// the queue stays empty.
func (h *hub) subscribe() (*subscriber, *process.ProcessEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &subscriber{ready: make(chan struct{}, 1), missed: h.kept}
	h.kept = nil
	if h.end != nil {
		return s, h.end
	}
	if h.subs == nil {
		h.subs = map[*subscriber]struct{}{}
	}
	h.subs[s] = struct{}{}
	h.wakeLocked()
	return s, nil
}

// leave removes s. With keep, the queued output of s and all output published without a reader are
// kept for the next subscriber. Only the first call for s counts.
func (h *hub) leave(s *subscriber, keep bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.left {
		return
	}
	s.left = true
	delete(h.subs, s)
	if keep && h.kept == nil && (h.end == nil || s.bytes > 0) {
		h.kept = &backlog{}
	}
	if keep && len(h.subs) == 0 && h.kept != nil && h.kept.size == 0 {
		s.handOver(h.kept)
	}
	s.queue = nil
	h.wakeLocked()
}

// handOver adds the queued output to l.
func (s *subscriber) handOver(l *backlog) {
	for _, ev := range s.queue {
		if from, b := outputOf(ev); len(b) > 0 {
			l.add(from, b)
		}
		l.dropped += ev.GetKeepalive().GetOutputDropped()
	}
	l.dropped += s.lost
}

// publish queues output for every reader. It waits while all queues are full, and for a limited
// time while one is.
func (h *hub) publish(from stream, b []byte) {
	for {
		wait, limit := h.offer(from, b)
		if wait == nil {
			return
		}
		began := time.Now()
		if limit == 0 {
			<-wait
			continue
		}
		patience := time.NewTimer(limit)
		select {
		case <-wait:
		case <-patience.C:
		}
		patience.Stop()
		h.waited(len(b), time.Since(began))
	}
}

// waited charges a wait to the readers that had no room.
func (h *hub) waited(n int, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		if s.blocks {
			s.held += d
			s.blocks = !s.hasRoom(n)
		}
	}
}

// offer queues output, or returns a channel to wait on and the longest time to wait. A limit of 0
// means until a reader has room.
func (h *hub) offer(from stream, b []byte) (wait <-chan struct{}, limit time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 {
		if h.kept != nil {
			h.kept.add(from, b)
		}
		return nil, 0
	}
	some := h.anyRoomLocked(len(b))
	if some {
		limit = h.patienceLocked(len(b), time.Now())
	}
	if !some || limit > 0 {
		if h.room == nil {
			h.room = make(chan struct{})
		}
		return h.room, limit
	}
	ev := dataEvent(from, b)
	for s := range h.subs {
		if !s.hasRoom(len(b)) {
			s.lost += int64(len(b))
			continue
		}
		s.push(ev)
		s.bytes += len(b)
	}
	return nil, 0
}

// patienceLocked returns how long to wait for readers without room that do not stall, or 0 if there
// are no such readers.
func (h *hub) patienceLocked(n int, now time.Time) (limit time.Duration) {
	for s := range h.subs {
		if s.blocks = !s.hasRoom(n) && !s.stall; !s.blocks {
			continue
		}
		if s.took.IsZero() {
			s.took = now
		}
		left := stallGrace - s.held
		if s.owner {
			left = stallGrace - now.Sub(s.took)
		}
		if s.stall = left <= 0; s.stall {
			s.blocks = false
			continue
		}
		if limit == 0 || left < limit {
			limit = left
		}
	}
	return limit
}

func (h *hub) anyRoomLocked(n int) bool {
	for s := range h.subs {
		if s.hasRoom(n) {
			return true
		}
	}
	return false
}

func (h *hub) wakeLocked() {
	if h.room != nil {
		close(h.room)
		h.room = nil
	}
}

func (s *subscriber) hasRoom(n int) bool {
	return len(s.queue) == 0 || s.bytes+n <= queueBytes && len(s.queue) < queuePieces
}

// push queues ev. If output was lost before it, it first queues a note.
func (s *subscriber) push(ev *process.ProcessEvent) {
	if s.lost > 0 {
		s.queue = append(s.queue, droppedEvent(s.lost))
		s.lost = 0
	}
	s.queue = append(s.queue, ev)
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take returns the next event for s, or nil if there is none.
func (h *hub) take(s *subscriber) *process.ProcessEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	ev := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	_, b := outputOf(ev)
	s.bytes -= len(b)
	s.took = time.Now()
	if s.owner {
		s.stall = false
	}
	if len(s.queue) == 0 {
		s.held, s.stall = 0, false
	}
	h.wakeLocked()
	return ev
}

// finish queues the last event. Later subscribers get it from subscribe.
func (h *hub) finish(end *process.ProcessEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = end
	for s := range h.subs {
		s.push(end)
	}
}
