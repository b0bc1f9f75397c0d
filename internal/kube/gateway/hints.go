package gateway

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
)

// hints remember the nodes of new snapshots until they are in the nodes' facts, and the nodes of requests with a
// client's own Idempotency-Key.
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
	keyTime   = 10 * time.Minute
	mostHints = 10_000
)

func (h *hints) set(tag, node string, d time.Duration) {
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
		h.at[tag] = hint{node, now.Add(d)}
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

func (h *hints) drop(tag string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.at, tag)
}

// keyOf returns the name of a client's request with an Idempotency-Key. Clients do not share keys.
func keyOf(r *http.Request, id string) string {
	sum := sha256.New()
	for _, part := range []string{r.Header.Get("Authorization"), r.Header.Get(api.HeaderKey), r.URL.Path, id} {
		fmt.Fprintf(sum, "%d %s", len(part), part)
	}
	return string(sum.Sum(nil))
}
