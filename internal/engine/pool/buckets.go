package pool

import (
	"cmp"
	"slices"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/launch"
	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// buckets keeps shells: VMs of a shape that wait to become a child. The shells of a tag with a
// configured size are prepared with its snapshot and used only for that tag. Tags without a size
// share plain shells of their shape. buckets does no I/O; the refillers do.
type buckets struct {
	fallback int           // number of plain shells for a shape of tags without a size
	kick     chan struct{} // wakes the refillers
	sources  sources       // snapshots to prepare shells with

	mu     sync.Mutex // guards the fields below; only the lock of sources is taken under it
	closed bool
	tags   map[string]poolTag
	byKey  map[Key]*bucket
}

// shell is a VM in a bucket.
type shell struct {
	*launch.VM
	key Key
}

// Key identifies interchangeable shells.
type Key struct {
	Shape vmspec.Shape // of the shells' VMs
	Tag   string       // of the snapshot that they are prepared with; empty for plain shells
	Hash  string       // of the snapshot's content, as the tag may be reused
	Owner string       // tenant of the snapshot and its shells; empty for the operator
}

// KeyOf returns the key of the shells for a snapshot's children.
func KeyOf(src *launch.Source) Key {
	return Key{src.Shape(), src.Tag, src.Hash(), src.Files.Manifest.Owner}
}

func (k Key) plain() Key { return Key{Shape: k.Shape} }

type poolTag struct {
	key   Key
	size  int
	set   bool // by SetPool
	unfit bool // no shell can be prepared with it: its shells are plain
}

type bucket struct {
	ready  []*shell
	coming int // being spawned
}

func newBuckets(fallback int) *buckets {
	return &buckets{fallback: fallback, kick: make(chan struct{}, Refillers), tags: map[string]poolTag{},
		byKey: map[Key]*bucket{}}
}

func (p *buckets) wake() {
	for range Refillers {
		select {
		case p.kick <- struct{}{}:
		default:
			return
		}
	}
}

// wantedLocked returns the target size of a bucket.
func (p *buckets) wantedLocked(key Key) int {
	if key.Tag != "" {
		if t := p.tags[key.Tag]; t.key == key && t.set && !t.unfit {
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

func (p *buckets) bucketLocked(key Key) *bucket {
	s := p.byKey[key]
	if s == nil {
		s = &bucket{}
		p.byKey[key] = s
	}
	return s
}

// touch creates the pool of a tag with the default size if it does not exist.
func (p *buckets) touch(tag string, shape vmspec.Shape) {
	p.mu.Lock()
	_, known := p.tags[tag]
	if !known {
		p.tags[tag] = poolTag{key: Key{Shape: shape, Tag: tag}}
	}
	p.mu.Unlock()
	if !known {
		p.wake()
	}
}

// set sets the size of a tag's pool and returns the surplus shells.
func (p *buckets) set(key Key, size int) []*shell {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tags[key.Tag] = poolTag{key: key, size: size, set: true}
	p.wake()
	return p.surplusLocked()
}

// markUnusable records that shells cannot be prepared for the key.
func (p *buckets) markUnusable(key Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t, ok := p.tags[key.Tag]; ok && t.key == key {
		t.unfit = true
		p.tags[key.Tag] = t
	}
}

// forget removes a deleted snapshot's pool and returns the shells to end.
func (p *buckets) forget(tag string) []*shell {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tags, tag)
	return p.surplusLocked()
}

func (p *buckets) surplusLocked() (over []*shell) {
	for key, s := range p.byKey {
		n := min(p.wantedLocked(key), len(s.ready))
		over = append(over, s.ready[n:]...)
		clear(s.ready[n:])
		s.ready = s.ready[:n]
		if n == 0 && s.coming == 0 {
			delete(p.byKey, key)
		}
	}
	return over
}

// take returns a shell, a prepared one before a plain one, or nil. The caller then owns it, dead or
// alive.
func (p *buckets) take(key Key) *shell {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range []Key{key, key.plain()} {
		if s := p.byKey[k]; s != nil && len(s.ready) > 0 {
			last := len(s.ready) - 1
			m := s.ready[last]
			s.ready[last], s.ready = nil, s.ready[:last]
			return m
		}
	}
	return nil
}

// count returns the number of ready shells for a snapshot.
func (p *buckets) count(key Key) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.countLocked(key)
}

func (p *buckets) countLocked(key Key) (n int) {
	for _, k := range []Key{key, key.plain()} {
		if s := p.byKey[k]; s != nil {
			n += len(s.ready)
		}
	}
	return n
}

// reserveSlot returns the key of a bucket that needs a shell, and reserves a slot in it. The caller
// must call put or releaseSlot.
func (p *buckets) reserveSlot() (Key, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Key{}, false
	}
	for _, t := range p.tags {
		for _, key := range []Key{t.key, t.key.plain()} {
			wanted := p.wantedLocked(key)
			if wanted == 0 {
				continue
			}
			if s := p.bucketLocked(key); len(s.ready)+s.coming < wanted {
				s.coming++
				return key, true
			}
		}
	}
	return Key{}, false
}

// put adds a shell made for reserveSlot, and the source it was prepared with, if any. It takes
// neither if the shell is no longer wanted or has died.
func (p *buckets) put(m *shell, src *launch.Source) (taken, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.bucketLocked(m.key)
	s.coming--
	if p.closed || !m.Alive() || len(s.ready) >= p.wantedLocked(m.key) {
		return false, false
	}
	s.ready = append(s.ready, m)
	return true, src != nil && p.sources.keep(m.key.Tag, src)
}

func (p *buckets) releaseSlot(key Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bucketLocked(key).coming--
}

// remove takes a dead shell out of its bucket. It returns false if the shell is no longer in it.
func (p *buckets) remove(m *shell) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.bucketLocked(m.key)
	i := slices.Index(s.ready, m)
	if i < 0 {
		return false
	}
	s.ready = slices.Delete(s.ready, i, i+1)
	p.wake()
	return true
}

// drain closes the pools and returns all shells.
func (p *buckets) drain() []*shell {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var all []*shell
	for _, s := range p.byKey {
		all = append(all, s.ready...)
		s.ready = nil
	}
	return all
}

// sizes returns the configured sizes, by tag.
func (p *buckets) sizes() map[string]int {
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

func (p *buckets) status() []sandbox.PoolStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []sandbox.PoolStatus
	for tag, t := range p.tags {
		wanted := t.size
		if !t.set {
			wanted = p.fallback
		}
		out = append(out, sandbox.PoolStatus{Tag: tag, Shape: t.key.Shape, Wanted: wanted, Set: t.set,
			Ready: p.countLocked(t.key)})
	}
	slices.SortFunc(out, func(a, b sandbox.PoolStatus) int { return cmp.Compare(a.Tag, b.Tag) })
	return out
}

func (p *buckets) all() []*launch.VM {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*launch.VM
	for _, b := range p.byKey {
		for _, s := range b.ready {
			all = append(all, s.VM)
		}
	}
	return all
}
