package procs

import (
	"sync"

	"github.com/forkd/forkd/internal/agentproto/process"
)

// hub hands every event of one process to every subscriber, in order, and
// waits until each has taken it. Nothing is queued.
type hub struct {
	mu   sync.Mutex
	subs map[*subscriber]struct{}
	end  *process.ProcessEvent // set once, when there will be no more events
}

type subscriber struct {
	events chan *process.ProcessEvent
	gone   chan struct{}
	once   sync.Once
}

// subscribe joins from now on. After the end it returns the end event instead
// of a subscriber.
func (h *hub) subscribe() (*subscriber, *process.ProcessEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		return nil, h.end
	}
	s := &subscriber{events: make(chan *process.ProcessEvent), gone: make(chan struct{})}
	if h.subs == nil {
		h.subs = map[*subscriber]struct{}{}
	}
	h.subs[s] = struct{}{}
	return s, nil
}

// leave lets a publisher that waits for s go on. It may be called twice.
func (h *hub) leave(s *subscriber) {
	s.once.Do(func() { close(s.gone) })
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
}

func (h *hub) publish(ev *process.ProcessEvent) {
	for _, s := range h.snapshot(nil) {
		select {
		case s.events <- ev:
		case <-s.gone:
		}
	}
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
