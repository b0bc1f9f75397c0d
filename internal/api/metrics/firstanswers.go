package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxAwaited limits the children without an answer until now. Beyond it, the oldest is forgotten.
const maxAwaited = 4096

// firstAnswers measures the first request in each child.
type firstAnswers struct {
	took    prometheus.Histogram
	awaited sync.Map // IDs of children; a request only reads it, except a child's first

	mu     sync.Mutex // guards the fields below; taken by forks only
	recent [maxAwaited]string
	next   int
}

// expect adds a new child.
func (f *firstAnswers) expect(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.awaited.Delete(f.recent[f.next])
	f.recent[f.next] = id
	f.next = (f.next + 1) % maxAwaited
	f.awaited.Store(id, true)
}

// answered observes a request if it is the first in its child. A failed request counts as the
// first, but not as an answer.
func (f *firstAnswers) answered(id string, took time.Duration, err error) {
	if _, first := f.awaited.LoadAndDelete(id); first && err == nil {
		f.took.Observe(took.Seconds())
	}
}
