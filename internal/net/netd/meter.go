package netd

import (
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/leaf/pace"
	"github.com/forkd/forkd/internal/net/netwire"
)

// meter limits the rate of a VM's bytes in one direction. Callers pass in the time. Streams wait in
// the order of their calls, each with at most one waiting chunk, so they share evenly. Datagrams
// are dropped, because they cannot wait. Waiting streams overdraw the bucket, and a datagram would
// never find a token beside them. So a quarter of the rate is lent to datagrams, and streams wait
// accordingly longer.
type meter struct {
	all       *pace.Bucket
	datagrams *pace.Bucket
	chunk     int // bytes of a stream per turn
}

// Fractions of a second. A burst is long enough for a slow clock to cost no bandwidth. A chunk of a
// stream is short enough to keep other streams' waits short.
const (
	burstsPerSecond = 4
	chunksPerSecond = 64
	leastChunk      = 2 << 10
	mostChunk       = 32 << 10
)

// newMeter returns a meter for rate bytes per second, or nil for no limit.
func newMeter(rate int64) *meter {
	if rate <= 0 {
		return nil
	}
	n := int(rate)
	return &meter{
		all:       pace.New(n, max(n/burstsPerSecond, netwire.MaxDatagram)),
		datagrams: pace.New(max(1, n/4), max(n/4/burstsPerSecond, netwire.MaxDatagram)),
		chunk:     min(max(n/chunksPerSecond, leastChunk), mostChunk),
	}
}

// stream takes n bytes of a stream, and returns how long they must wait.
func (m *meter) stream(now time.Time, n int) time.Duration { return m.all.TakeN(now, n) }

// datagram takes a datagram of n bytes. It returns false if it must be dropped.
func (m *meter) datagram(now time.Time, n int) bool {
	if m.all.TryN(now, n) {
		return true
	}
	if !m.datagrams.TryN(now, n) {
		return false
	}
	m.all.TakeN(now, n)
	return true
}

// meters are the meters for one direction: the VM's own and its tree's. They are nil for no limit.
type meters struct{ own, tree *meter }

func (m meters) none() bool { return m.own == nil && m.tree == nil }

// chunk returns the number of bytes of a stream per turn.
func (m meters) chunk() int {
	n := mostChunk
	for _, one := range []*meter{m.own, m.tree} {
		if one != nil {
			n = min(n, one.chunk)
		}
	}
	return n
}

// stream takes n bytes of a stream from both meters, and returns how long they must wait.
func (m meters) stream(now time.Time, n int) (wait time.Duration) {
	for _, one := range []*meter{m.own, m.tree} {
		if one != nil {
			wait = max(wait, one.stream(now, n))
		}
	}
	return wait
}

// datagram takes a datagram of n bytes. It returns false if it must be dropped. A datagram over the
// VM's own limit takes no bytes from its tree.
func (m meters) datagram(now time.Time, n int) bool {
	return (m.own == nil || m.own.datagram(now, n)) && (m.tree == nil || m.tree.datagram(now, n))
}

// traffic counts the bytes of a VM's ended flows.
type traffic struct{ in, out atomic.Int64 }

func (t *traffic) add(in, out int64) {
	t.in.Add(in)
	t.out.Add(out)
}
