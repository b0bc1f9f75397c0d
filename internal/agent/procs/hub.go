package procs

import (
	"sync"

	"github.com/forkd/forkd/internal/agentproto/process"
)

// queueBytes and queuePieces bound the output that waits for one reader.
// Readers share the bytes.
const (
	queueBytes  = 1 << 20
	queuePieces = 4096
)

// hub hands the events of one process to its readers, in order. Each reader has
// a queue of its own. The fastest reader sets the pace: the process waits only
// while every queue is full, so a single reader loses nothing, as with a pipe.
// With several readers, one whose queue is full loses output. In a clone,
// output also waits for the first caller.
type hub struct {
	mu   sync.Mutex
	subs map[*subscriber]struct{}
	room chan struct{}         // closed when a queue may have room again; nil if publish does not wait
	kept *backlog              // output for the next subscriber; if nil, output without readers is dropped
	end  *process.ProcessEvent // set once, when there will be no more events
}

// subscriber is one reader. The hub's mu guards its queue.
type subscriber struct {
	queue []*process.ProcessEvent // oldest first
	bytes int                     // of output in queue
	lost  int64                   // bytes dropped since the last event in queue
	ready chan struct{}           // holds a token while queue may have events
	left  bool
	// missed is the output from before, if it was kept.
	missed *backlog
}

// subscribe joins from now on. After the end it also returns the end event, and
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

// leave removes s. With keep, the output that waits for s, and all that is
// published without a reader, waits for the next subscriber. Only the first
// call for s counts.
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

// handOver adds the output in the queue to l.
func (s *subscriber) handOver(l *backlog) {
	for _, ev := range s.queue {
		if from, b := outputOf(ev); len(b) > 0 {
			l.add(from, b)
		}
		l.dropped += ev.GetKeepalive().GetOutputDropped()
	}
	l.dropped += s.lost
}

// publish queues output for every reader. It waits while all queues are full.
func (h *hub) publish(from stream, b []byte) {
	for {
		wait := h.offer(from, b)
		if wait == nil {
			return
		}
		<-wait
	}
}

// offer queues output, or returns a channel to wait for if no reader has room.
func (h *hub) offer(from stream, b []byte) (wait <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 {
		if h.kept != nil {
			h.kept.add(from, b)
		}
		return nil
	}
	if !h.anyRoomLocked(len(b)) {
		if h.room == nil {
			h.room = make(chan struct{})
		}
		return h.room
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
	return nil
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

// push queues ev, after a note of the output lost before it.
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

// take returns the next event for s, or nil if none waits.
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
