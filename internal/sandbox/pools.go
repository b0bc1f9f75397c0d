package sandbox

import (
	"cmp"
	"slices"
	"sync"

	"github.com/forkd/forkd/internal/vmspec"
)

// pools keeps shells: machines that hold a VM of a shape and wait for a
// snapshot. Tags of equal shape share them. It does no I/O; the refillers do.
type pools struct {
	fallback int           // shells for a shape none of whose tags has a size of its own
	kick     chan struct{} // wakes the refillers

	mu     sync.Mutex // guards what follows; no other lock is taken under it
	closed bool
	tags   map[string]poolTag
	shelf  map[vmspec.Shape]*shelf
}

type poolTag struct {
	shape vmspec.Shape
	size  int
	set   bool // by SetPool
}

type shelf struct {
	ready  []*machine
	coming int // being spawned
}

func newPools(fallback int) *pools {
	return &pools{fallback: fallback, kick: make(chan struct{}, refillers), tags: map[string]poolTag{}, shelf: map[vmspec.Shape]*shelf{}}
}

func (p *pools) wake() {
	for range refillers {
		select {
		case p.kick <- struct{}{}:
		default:
			return
		}
	}
}

// wantedLocked is the sum of the sizes that were set, and at least the fallback
// when some tag of the shape has none set.
func (p *pools) wantedLocked(shape vmspec.Shape) int {
	sum, least := 0, 0
	for _, t := range p.tags {
		switch {
		case t.shape != shape:
		case t.set:
			sum += t.size
		default:
			least = p.fallback
		}
	}
	return max(sum, least)
}

func (p *pools) shelfLocked(shape vmspec.Shape) *shelf {
	s := p.shelf[shape]
	if s == nil {
		s = &shelf{}
		p.shelf[shape] = s
	}
	return s
}

// touch makes the pool of a tag exist with the default size.
func (p *pools) touch(tag string, shape vmspec.Shape) {
	p.mu.Lock()
	_, known := p.tags[tag]
	if !known {
		p.tags[tag] = poolTag{shape: shape}
	}
	p.mu.Unlock()
	if !known {
		p.wake()
	}
}

// set gives a tag's pool a size and returns the shells that are too many now.
func (p *pools) set(tag string, shape vmspec.Shape, size int) []*machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tags[tag] = poolTag{shape: shape, size: size, set: true}
	p.wake()
	return p.surplusLocked(shape)
}

// forget removes a deleted snapshot's pool and returns the shells to end.
func (p *pools) forget(tag string) []*machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.tags[tag]
	if !ok {
		return nil
	}
	delete(p.tags, tag)
	return p.surplusLocked(t.shape)
}

func (p *pools) surplusLocked(shape vmspec.Shape) []*machine {
	s := p.shelfLocked(shape)
	n := min(p.wantedLocked(shape), len(s.ready))
	over := slices.Clone(s.ready[n:])
	clear(s.ready[n:])
	s.ready = s.ready[:n]
	return over
}

// take hands out a shell, or nil. It is the caller's then, dead or alive.
func (p *pools) take(shape vmspec.Shape) *machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelfLocked(shape)
	if len(s.ready) == 0 {
		return nil
	}
	last := len(s.ready) - 1
	m := s.ready[last]
	s.ready[last], s.ready = nil, s.ready[:last]
	return m
}

// count is the number of shells that stand ready.
func (p *pools) count(shape vmspec.Shape) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.shelfLocked(shape).ready)
}

// lack names a shape that is short of a shell and reserves the place; put or
// miss must follow.
func (p *pools) lack() (vmspec.Shape, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tags {
		s := p.shelfLocked(t.shape)
		if !p.closed && len(s.ready)+s.coming < p.wantedLocked(t.shape) {
			s.coming++
			return t.shape, true
		}
	}
	return vmspec.Shape{}, false
}

// put adds a shell that lack asked for. It reports false when nobody wants it
// any more: it stays the caller's. So does one that died.
func (p *pools) put(m *machine) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelfLocked(m.shape)
	s.coming--
	if p.closed || !alive(m) || len(s.ready) >= p.wantedLocked(m.shape) {
		return false
	}
	s.ready = append(s.ready, m)
	return true
}

func (p *pools) miss(shape vmspec.Shape) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shelfLocked(shape).coming--
}

// remove takes a dead shell off its shelf; false when it is not on it (any more).
func (p *pools) remove(m *machine) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelfLocked(m.shape)
	i := slices.Index(s.ready, m)
	if i < 0 {
		return false
	}
	s.ready = slices.Delete(s.ready, i, i+1)
	p.wake()
	return true
}

// drain closes the pools and hands out all shells.
func (p *pools) drain() []*machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var all []*machine
	for _, s := range p.shelf {
		all = append(all, s.ready...)
		s.ready = nil
	}
	return all
}

// sizes are the sizes that were set, by tag.
func (p *pools) sizes() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]int{}
	for tag, t := range p.tags {
		if t.set {
			out[tag] = t.size
		}
	}
	return out
}

func (p *pools) status() []PoolStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []PoolStatus
	for tag, t := range p.tags {
		wanted := t.size
		if !t.set {
			wanted = p.fallback
		}
		out = append(out, PoolStatus{Tag: tag, Shape: t.shape, Wanted: wanted, Ready: len(p.shelfLocked(t.shape).ready)})
	}
	slices.SortFunc(out, func(a, b PoolStatus) int { return cmp.Compare(a.Tag, b.Tag) })
	return out
}
