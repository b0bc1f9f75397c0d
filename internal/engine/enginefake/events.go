package enginefake

import (
	"strings"
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Events records an engine's events.
type Events struct {
	Mu  sync.Mutex // guards All
	All []string
}

// Listen collects an engine's events, as "kind id", or "kind id: reason" if they have a reason.
func Listen(h *Host) *Events {
	s := &Events{}
	h.Cfg.Events = func(kind, id string, d map[string]string) {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		if r := d[sandbox.EventKeyReason]; r != "" {
			id += ": " + r
		}
		s.All = append(s.All, kind+" "+id)
	}
	return s
}

// Of returns the kinds of events about an object, in order.
func (s *Events) Of(id string) string {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	var kinds []string
	for _, e := range s.All {
		if kind, of, _ := strings.Cut(e, " "); of == id || strings.HasPrefix(of, id+": ") {
			kinds = append(kinds, kind)
		}
	}
	return strings.Join(kinds, " ")
}

// Want waits until the events about an object are of these kinds.
func (s *Events) Want(t *testing.T, id, kinds string) {
	t.Helper()
	Eventually(t, "event of "+id+" after "+s.Of(id), func() bool { return s.Of(id) == kinds })
}

// Paused reports whether a sandbox was paused.
func (s *Events) Paused(id string) bool { return strings.Contains(s.Of(id), sandbox.EventPaused) }

// Pauses returns the events of paused sandboxes.
func (s *Events) Pauses() (all []string) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, e := range s.All {
		if strings.HasPrefix(e, sandbox.EventPaused+" ") {
			all = append(all, e)
		}
	}
	return all
}
