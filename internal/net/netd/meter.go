package netd

import (
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/leaf/pace"
	"github.com/forkd/forkd/internal/net/netwire"
)

// meter keeps one way of a VM's bytes to a rate. It is told the time. Streams wait for their turn, in
// the order in which they ask, and each has one chunk waiting at most: so they share evenly. Datagrams
// are dropped, as they have nowhere to wait. Streams overdraw the bucket as long as they wait, so
// that a datagram would never find a token beside them: a quarter of the rate is lent to datagrams,
// and streams wait the longer for it.
type meter struct {
	all       *pace.Bucket
	datagrams *pace.Bucket
	chunk     int // of a stream, in bytes
}

// Parts of a second. A burst is long enough that a slow clock costs no bandwidth; a chunk of a stream is
// short enough that others do not wait long for theirs.
const (
	burstsPerSecond = 4
	chunksPerSecond = 64
	leastChunk      = 2 << 10
	mostChunk       = 32 << 10
)

// newMeter makes a meter of so many bytes a second; nil: there is no limit.
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

// stream takes n bytes of a stream, and says how long they have to wait.
func (m *meter) stream(now time.Time, n int) time.Duration { return m.all.TakeN(now, n) }

// datagram takes one of n bytes; false: it is to be dropped.
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

// meters are those that bytes of one way have to pass: the VM's own and that of its tree; nil for no limit.
type meters struct{ own, tree *meter }

func (m meters) none() bool { return m.own == nil && m.tree == nil }

// chunk is how much of a stream goes at a time.
func (m meters) chunk() int {
	n := mostChunk
	for _, one := range []*meter{m.own, m.tree} {
		if one != nil {
			n = min(n, one.chunk)
		}
	}
	return n
}

// stream takes n bytes of a stream from both, and says how long they have to wait.
func (m meters) stream(now time.Time, n int) (wait time.Duration) {
	for _, one := range []*meter{m.own, m.tree} {
		if one != nil {
			wait = max(wait, one.stream(now, n))
		}
	}
	return wait
}

// datagram takes one of n bytes; false: it is to be dropped. What is over the VM's own limit takes
// nothing from others of the tree.
func (m meters) datagram(now time.Time, n int) bool {
	return (m.own == nil || m.own.datagram(now, n)) && (m.tree == nil || m.tree.datagram(now, n))
}

// traffic is what a VM's flows that have ended have had.
type traffic struct{ in, out atomic.Int64 }

func (t *traffic) add(in, out int64) {
	t.in.Add(in)
	t.out.Add(out)
}
