package usernet

import (
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/pace"
)

// flow is a table's entry for a Flow.
type flow interface {
	// stop ends it; its goroutine leaves the table soon after. It does not wait.
	stop()
	// idleSince returns the time of a flow's last datagram; false for TCP.
	idleSince() (time.Time, bool)
}

// table holds the current flows, within their limits.
type table struct {
	limits Limits
	count  *counters
	now    func() time.Time
	rate   *pace.Bucket

	mu     sync.Mutex // guards the fields below
	flows  map[Flow]flow
	dials  int
	large  int // TCP flows with growable buffers
	closed bool
	ended  chan struct{} // closed when the last flow has left, after close
	wg     sync.WaitGroup
}

func (t *table) init(l Limits, c *counters, now func() time.Time) {
	t.limits, t.count, t.now = l, c, now
	t.rate = pace.New(l.FlowsPerSec, l.FlowsPerSec)
	t.flows = map[Flow]flow{}
	t.ended = make(chan struct{})
}

func (t *table) sizes() (flows, dials uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return uint64(len(t.flows)), uint64(t.dials)
}

func (t *table) get(f Flow) flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flows[f]
}

// give calls take with an existing flow. take must not wait. Once remove has returned, give no
// longer calls take for the flow.
func (t *table) give(f Flow, take func(flow)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	fl := t.flows[f]
	if fl == nil {
		return false
	}
	take(fl)
	return true
}

// add admits a flow, with its dial beginning now, or counts the refusal. The caller calls remove
// when the flow is over.
func (t *table) add(f Flow, fl flow) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed || t.flows[f] != nil:
		return false
	case t.dials >= t.limits.Dials:
		t.count.overDials.Add(1)
		return false
	case len(t.flows) >= t.limits.Flows && !t.evictLocked():
		t.count.overFlows.Add(1)
		return false
	case !t.rate.Try(t.now()):
		t.count.overRate.Add(1)
		return false
	}
	t.flows[f] = fl
	t.dials++
	t.wg.Add(1)
	return true
}

// evictIdle is how long a flow of datagrams must be idle to be evicted.
const evictIdle = time.Second

// evictLocked ends the longest-idle flow of datagrams.
func (t *table) evictLocked() bool {
	var oldest flow
	var key Flow
	at := t.now().Add(-evictIdle)
	for f, fl := range t.flows {
		if since, ok := fl.idleSince(); ok && since.Before(at) {
			oldest, key, at = fl, f, since
		}
	}
	if oldest == nil {
		return false
	}
	delete(t.flows, key)
	oldest.stop()
	t.count.evictions.Add(1)
	return true
}

// dialed is called when a flow's dial is over.
func (t *table) dialed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dials--
}

// remove removes a flow, unless another has replaced it.
func (t *table) remove(f Flow, fl flow) {
	t.mu.Lock()
	if t.flows[f] == fl {
		delete(t.flows, f)
	}
	t.mu.Unlock()
	t.wg.Done()
}

// takeLarge reports whether a TCP flow's buffers may grow. If so, the caller must call dropLarge.
func (t *table) takeLarge() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.large >= t.limits.LargeBuffers {
		return false
	}
	t.large++
	return true
}

func (t *table) dropLarge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.large--
}

// close stops all flows and admits no more. The channel is closed when the last flow has left.
func (t *table) close() <-chan struct{} {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	for _, fl := range t.flows {
		fl.stop()
	}
	t.mu.Unlock()
	if first {
		go func() {
			t.wg.Wait()
			close(t.ended)
		}()
	}
	return t.ended
}
