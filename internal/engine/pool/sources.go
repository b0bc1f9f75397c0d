package pool

import (
	"sync"

	"github.com/forkd/forkd/internal/engine/launch"
)

// sources keeps the snapshots of prepared shells open, so that a fork into these shells opens no
// files; with a deep backing chain it would open about twenty. The snapshot of a tag does not
// change until the tag is deleted, which drops the source.
type sources struct {
	mu    sync.Mutex // guards the fields below
	byTag map[string]*sharedSource
}

type sharedSource struct {
	src   *launch.Source
	users int // including the map
}

// take returns an open source, or nil. The caller closes it.
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

// keep takes over a source until drop. If there already is one, it returns false, and the caller
// keeps the source.
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

// drop closes a tag's source as soon as it has no users.
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
