package gateway

import (
	"sync"
	"time"
)

// hints remember the nodes of new snapshots until they are in the nodes' facts.
type hints struct {
	mu sync.Mutex
	at map[string]hint
}

type hint struct {
	node string
	end  time.Time
}

const (
	hintTime  = 30 * time.Second
	mostHints = 10_000
)

func (h *hints) set(tag, node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.at == nil {
		h.at = map[string]hint{}
	}
	if len(h.at) >= mostHints {
		for t, old := range h.at {
			if now.After(old.end) {
				delete(h.at, t)
			}
		}
	}
	if len(h.at) < mostHints {
		h.at[tag] = hint{node, now.Add(hintTime)}
	}
}

// get returns the name of a node, or an empty string.
func (h *hints) get(tag string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found := h.at[tag]; time.Now().Before(found.end) {
		return found.node
	}
	return ""
}
