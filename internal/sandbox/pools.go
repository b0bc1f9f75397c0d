package sandbox

import (
	"cmp"
	"slices"
	"sync"

	"github.com/forkd/forkd/internal/vmspec"
)

// pools keeps shells: machines that hold a VM of a shape and wait to become a
// child. Those of a tag whose size was set are prepared with its snapshot and
// are its own; tags without a size share plain ones of their shape. It does no
// I/O; the refillers do.
type pools struct {
	fallback int           // plain shells for a shape that some tag without a size of its own has
	kick     chan struct{} // wakes the refillers
	sources  sources       // what shells are prepared with

	mu     sync.Mutex // guards what follows; but that of sources, no other lock is taken under it
	closed bool
	tags   map[string]poolTag
	shelf  map[poolKey]*shelf
}

// poolKey names shells that are as good as one another.
type poolKey struct {
	shape vmspec.Shape
	tag   string // whose snapshot they are prepared with; empty: they are plain
	hash  string // of the snapshot's content: another one may have got the tag
}

func (k poolKey) plain() poolKey { return poolKey{shape: k.shape} }

type poolTag struct {
	key   poolKey
	size  int
	set   bool // by SetPool
	unfit bool // no shell can be prepared with it: its shells are plain
}

type shelf struct {
	ready  []*machine
	coming int // being spawned
}

func newPools(fallback int) *pools {
	return &pools{fallback: fallback, kick: make(chan struct{}, refillers), tags: map[string]poolTag{}, shelf: map[poolKey]*shelf{}}
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

// wantedLocked is how many shells a shelf is to have.
func (p *pools) wantedLocked(key poolKey) int {
	if key.tag != "" {
		if t := p.tags[key.tag]; t.key == key && t.set && !t.unfit {
			return t.size
		}
		return 0
	}
	sum, least := 0, 0
	for _, t := range p.tags {
		switch {
		case t.key.plain() != key:
		case !t.set:
			least = p.fallback
		case t.unfit:
			sum += t.size
		}
	}
	return max(sum, least)
}

func (p *pools) shelfLocked(key poolKey) *shelf {
	s := p.shelf[key]
	if s == nil {
		s = &shelf{}
		p.shelf[key] = s
	}
	return s
}

// touch makes the pool of a tag exist with the default size.
func (p *pools) touch(tag string, shape vmspec.Shape) {
	p.mu.Lock()
	_, known := p.tags[tag]
	if !known {
		p.tags[tag] = poolTag{key: poolKey{shape: shape, tag: tag}}
	}
	p.mu.Unlock()
	if !known {
		p.wake()
	}
}

// set gives a tag's pool a size and returns the shells that are too many now.
func (p *pools) set(key poolKey, size int) []*machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tags[key.tag] = poolTag{key: key, size: size, set: true}
	p.wake()
	return p.surplusLocked()
}

// spoil says that no shell can be prepared for the key.
func (p *pools) spoil(key poolKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.tags[key.tag]; ok && t.key == key {
		t.unfit = true
		p.tags[key.tag] = t
	}
}

// forget removes a deleted snapshot's pool and returns the shells to end.
func (p *pools) forget(tag string) []*machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tags, tag)
	return p.surplusLocked()
}

func (p *pools) surplusLocked() (over []*machine) {
	for key, s := range p.shelf {
		n := min(p.wantedLocked(key), len(s.ready))
		over = append(over, s.ready[n:]...)
		clear(s.ready[n:])
		s.ready = s.ready[:n]
		if n == 0 && s.coming == 0 {
			delete(p.shelf, key)
		}
	}
	return over
}

// take hands out a shell, a prepared one before a plain one, or nil. It is the
// caller's then, dead or alive.
func (p *pools) take(key poolKey) *machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range []poolKey{key, key.plain()} {
		if s := p.shelf[k]; s != nil && len(s.ready) > 0 {
			last := len(s.ready) - 1
			m := s.ready[last]
			s.ready[last], s.ready = nil, s.ready[:last]
			return m
		}
	}
	return nil
}

// count is the number of shells that stand ready for a snapshot.
func (p *pools) count(key poolKey) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.countLocked(key)
}

func (p *pools) countLocked(key poolKey) (n int) {
	for _, k := range []poolKey{key, key.plain()} {
		if s := p.shelf[k]; s != nil {
			n += len(s.ready)
		}
	}
	return n
}

// lack names a shelf that is short of a shell and reserves the place; put or
// miss must follow.
func (p *pools) lack() (poolKey, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return poolKey{}, false
	}
	for _, t := range p.tags {
		for _, key := range []poolKey{t.key, t.key.plain()} {
			wanted := p.wantedLocked(key)
			if wanted == 0 {
				continue
			}
			if s := p.shelfLocked(key); len(s.ready)+s.coming < wanted {
				s.coming++
				return key, true
			}
		}
	}
	return poolKey{}, false
}

// put adds a shell that lack asked for, and what it was prepared with, if anything.
// Neither is taken when nobody wants the shell any more, or it died.
func (p *pools) put(m *machine, src *forkSource) (taken, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelfLocked(m.shelf)
	s.coming--
	if p.closed || !alive(m) || len(s.ready) >= p.wantedLocked(m.shelf) {
		return false, false
	}
	s.ready = append(s.ready, m)
	return true, src != nil && p.sources.keep(m.shelf.tag, src)
}

func (p *pools) miss(key poolKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shelfLocked(key).coming--
}

// remove takes a dead shell off its shelf; false when it is not on it (any more).
func (p *pools) remove(m *machine) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelfLocked(m.shelf)
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
		out = append(out, PoolStatus{Tag: tag, Shape: t.key.shape, Wanted: wanted, Ready: p.countLocked(t.key)})
	}
	slices.SortFunc(out, func(a, b PoolStatus) int { return cmp.Compare(a.Tag, b.Tag) })
	return out
}
