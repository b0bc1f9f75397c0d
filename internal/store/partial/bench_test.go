package partial

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
)

// link is a Source behind a link with a rate and a delay.
type link struct {
	Source
	rate  int64 // bytes of a second, of all requests together
	delay time.Duration

	mu   sync.Mutex
	free time.Time // when the link has sent all it has
}

func (l *link) Range(ctx context.Context, d hub.Descriptor, at, n int64) (io.ReadCloser, error) {
	time.Sleep(l.delay) // elapses: it is the link's
	r, err := l.Source.Range(ctx, d, at, n)
	return struct {
		io.Reader
		io.Closer
	}{paced{r, l}, r}, err
}

type paced struct {
	io.Reader
	l *link
}

func (p paced) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b[:min(len(b), 64<<10)])
	p.l.mu.Lock()
	const lag = 10 * time.Millisecond // by which a piece may be late without a loss: timers are not exact
	if begin := time.Now().Add(-lag); p.l.free.Before(begin) {
		p.l.free = begin
	}
	p.l.free = p.l.free.Add(time.Duration(n) * time.Second / time.Duration(p.l.rate))
	due := p.l.free
	p.l.mu.Unlock()
	time.Sleep(time.Until(due)) // elapses: it is the link's
	return n, err
}

// BenchmarkWorkingSet fetches, unpacks and compares 150 MiB that do not compress, over a link of 100 MB/s and 20 ms, as
// the fetcher does before a guest runs: with four requests at once.
func BenchmarkWorkingSet(b *testing.B) {
	const size = 150 << 20
	bench := newBench(b, size)
	for b.Loop() {
		b.StopTimer()
		bench.id = layer.NewID() // absent as a whole
		must(b, Create(bench.root, bench.id, Spec{Name: "layer/" + bench.id.String(), Frames: bench.b.desc}, bench.b.table))
		bench.opt.Source = &link{Source: bench.registry, rate: 100e6, delay: 20 * time.Millisecond}
		f := bench.open(b)
		b.StartTimer()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := f.Prefetch(b.Context(), f.All()-1); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
	b.SetBytes(size)
}
