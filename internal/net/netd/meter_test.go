package netd

import (
	"container/heap"
	"testing"
	"time"
)

// stream always has more to send.
type stream struct {
	next time.Time // when its chunk may pass
	sent int
}

type streams []*stream

func (s streams) Len() int           { return len(s) }
func (s streams) Less(i, j int) bool { return s[i].next.Before(s[j].next) }
func (s streams) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *streams) Push(x any)        { *s = append(*s, x.(*stream)) }
func (s *streams) Pop() any {
	old := *s
	x := old[len(old)-1]
	*s = old[:len(old)-1]
	return x
}

// siege runs n greedy streams, and one sender of a datagram per millisecond, with a simulated
// clock.
func siege(m *meter, n int, datagram int, d time.Duration) (each []int, datagrams int) {
	begin := time.Unix(1000, 0)
	var all, queue streams
	for range n {
		s := &stream{next: begin}
		s.next = begin.Add(m.stream(begin, m.chunk))
		all, queue = append(all, s), append(queue, s)
	}
	heap.Init(&queue)
	for now := begin; now.Before(begin.Add(d)); now = now.Add(time.Millisecond) {
		for len(queue) > 0 && !queue[0].next.After(now) {
			s := heap.Pop(&queue).(*stream)
			s.sent += m.chunk
			s.next = now.Add(m.stream(now, m.chunk))
			heap.Push(&queue, s)
		}
		if datagram > 0 && m.datagram(now, datagram) {
			datagrams += datagram
		}
	}
	for _, s := range all {
		each = append(each, s.sent)
	}
	return each, datagrams
}

func TestARateIsKeptAndSharedEvenly(t *testing.T) {
	const seconds = 20
	for _, c := range []struct {
		name              string
		rate              int64
		streams, datagram int
	}{
		{"one stream", 1 << 20, 1, 0},
		{"many streams", 1 << 20, 200, 0},
		{"streams and datagrams", 1 << 20, 10, 1400},
		{"datagrams alone", 1 << 20, 0, 1400},
		{"a high rate", 100 << 20, 20, 1400},
		{"the least rate", 1024, 1, 0},
	} {
		m := newMeter(c.rate)
		each, datagrams := siege(m, c.streams, c.datagram, seconds*time.Second)
		sum, least, most := datagrams, 1<<62, 0
		for _, n := range each {
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		asked := c.rate
		if c.streams == 0 {
			asked = min(asked, int64(c.datagram)*1000)
		}
		burst := max(c.rate/burstsPerSecond, 1<<16)
		if got := int64(sum); got > c.rate*seconds+2*burst || got < asked*seconds*9/10-int64(mostChunk) {
			t.Errorf("%s: %d bytes in %d s, want %d a second", c.name, sum, seconds, asked)
		}
		if c.streams > 1 && most-least > int(burst)+2*m.chunk { // the first one has the burst
			t.Errorf("%s: one had %d bytes, another one %d", c.name, most, least)
		}
		if c.streams > 0 && c.datagram > 0 {
			if share := float64(datagrams) / seconds / float64(min(c.rate/4, int64(c.datagram)*1000)); share < 0.9 {
				t.Errorf("%s: datagrams had %.2f of their part", c.name, share)
			}
		}
	}
	if newMeter(0) != nil {
		t.Error("no limit is one")
	}
}
