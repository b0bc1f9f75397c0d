package pool

import (
	"sync"

	"github.com/forkd/forkd/internal/engine/launch"
)

// sources keeps the snapshots open that shells are prepared with: a fork into
// these opens nothing; from deep in a chain that would be some twenty files.
// What a tag names does not change before the tag is deleted, which drops it.
type sources struct {
	mu    sync.Mutex // guards what follows
	byTag map[string]*sharedSource
}

type sharedSource struct {
	src   *launch.Source
	users int // the map is one of them
}

// take gives an open source out, to be closed like any other; nil: there is none.
func (s *sources) take(tag string) *launch.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byTag[tag]
	if k == nil {
		return nil
	}
	k.users++
	return k.src.Shared(func() { s.release(k) })
}

// keep takes a source over until drop. It reports false, and the source stays the
// caller's, if there is one already.
func (s *sources) keep(tag string, src *launch.Source) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byTag[tag] != nil {
		return false
	}
	if s.byTag == nil {
		s.byTag = map[string]*sharedSource{}
	}
	s.byTag[tag] = &sharedSource{src: src, users: 1}
	return true
}

// drop closes a tag's source as soon as nobody uses it.
func (s *sources) drop(tag string) {
	s.mu.Lock()
	k := s.byTag[tag]
	delete(s.byTag, tag)
	s.mu.Unlock()
	if k != nil {
		s.release(k)
	}
}

func (s *sources) dropAll() {
	s.mu.Lock()
	all := s.byTag
	s.byTag = nil
	s.mu.Unlock()
	for _, k := range all {
		s.release(k)
	}
}

func (s *sources) release(k *sharedSource) {
	s.mu.Lock()
	k.users--
	last := k.users == 0
	s.mu.Unlock()
	if last {
		k.src.Close()
	}
}
