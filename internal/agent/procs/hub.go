package procs

import (
	"sync"

	"github.com/forkd/forkd/internal/agentproto/process"
)

// hub hands every event of one process to every subscriber, in order, and
// waits until each has taken it. Output is queued only in a clone, and only
// until its first caller comes.
type hub struct {
	mu   sync.Mutex
	subs map[*subscriber]struct{}
	kept *backlog              // output for the next subscriber; nil: with nobody there it is thrown away
	end  *process.ProcessEvent // set once, when there will be no more events
}

type subscriber struct {
	events chan *process.ProcessEvent
	gone   chan struct{}
	once   sync.Once
	// missed is the output from before, if it was kept.
	missed *backlog
}

// subscribe joins from now on. After the end, the end event is returned too and
// nothing comes any more.
func (h *hub) subscribe() (*subscriber, *process.ProcessEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &subscriber{events: make(chan *process.ProcessEvent), gone: make(chan struct{}), missed: h.kept}
	h.kept = nil
	if h.end != nil {
		return s, h.end
	}
	if h.subs == nil {
		h.subs = map[*subscriber]struct{}{}
	}
	h.subs[s] = struct{}{}
	return s, nil
}

// leave lets a publisher that waits for s go on. With keep, what is published
// while nobody is there waits for the next subscriber. Only the first call for
// s counts.
func (h *hub) leave(s *subscriber, keep bool) {
	s.once.Do(func() {
		h.mu.Lock()
		delete(h.subs, s)
		if keep && h.kept == nil && h.end == nil {
			h.kept = &backlog{}
		}
		h.mu.Unlock()
		close(s.gone) // last, so that the publisher finds the above
	})
}

// publish hands output on. Who subscribes while nobody has taken it gets it.
func (h *hub) publish(from stream, b []byte) {
	ev := dataEvent(from, b)
	for !h.offer(ev) && !h.keepOrDrop(from, b) {
	}
}

func (h *hub) offer(ev *process.ProcessEvent) (taken bool) {
	for _, s := range h.snapshot(nil) {
		select {
		case s.events <- ev:
			taken = true
		case <-s.gone:
		}
	}
	return taken
}

// keepOrDrop reports false if somebody is there to take it after all.
func (h *hub) keepOrDrop(from stream, b []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) > 0 {
		return false
	}
	if h.kept != nil {
		h.kept.add(from, b)
	}
	return true
}

// finish publishes the last event; later subscribers get it at once.
func (h *hub) finish(end *process.ProcessEvent) {
	for _, s := range h.snapshot(end) {
		select {
		case s.events <- end:
		case <-s.gone:
		}
	}
}

func (h *hub) snapshot(end *process.ProcessEvent) []*subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	if end != nil {
		h.end = end
	}
	out := make([]*subscriber, 0, len(h.subs))
	for s := range h.subs {
		out = append(out, s)
	}
	return out
}
