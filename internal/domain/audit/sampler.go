package audit

import (
	"sync"
	"time"
)

// Bounds of a sampler. They limit the lines that anonymous clients can cause to about 20 per second.
const (
	sampleEvery  = 10 * time.Second
	maxOfSource  = 4  // kinds per source and interval
	maxAnonymous = 64 // kinds of all sources per interval
	maxTraffic   = 512
)

// kind holds the common fields of entries that are counted together.
type kind struct {
	source, action string
	result         Result
	status         int
}

// sampler passes the first entry of each kind per interval and counts the others.
type sampler struct {
	most int // kinds per interval

	mu      sync.Mutex
	kinds   map[kind]*Entry // Count is the number of entries held back
	sources map[string]int  // kinds of each source
}

func newSampler(most int) *sampler {
	return &sampler{most: most, kinds: map[kind]*Entry{}, sources: map[string]int{}}
}

// take reports whether an entry is to be written now. Otherwise take counts it.
func (s *sampler) take(source string, e Entry) bool {
	k := kind{source, e.Action, e.Result, e.Status}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.kinds[k]; known != nil {
		count(known, e)
		return false
	}
	if s.sources[source] >= maxOfSource || len(s.kinds) >= s.most {
		k = kind{source: source, result: e.Result}
		if s.sources[source] == 0 {
			k.source = "" // for entries of too many sources
		}
		if s.kinds[k] == nil {
			s.kinds[k] = &Entry{Action: ActionOthers, Result: e.Result, Anonymous: true, Source: k.source}
		}
		count(s.kinds[k], e)
		return false
	}
	s.sources[source]++
	s.kinds[k] = &Entry{Time: e.Time}
	return true
}

// count adds an entry to a line. The line keeps the newest entry's fields, unless it counts other kinds.
func count(to *Entry, e Entry) {
	n := to.Count + 1
	if to.Action != ActionOthers {
		*to = e
	}
	to.Count, to.Time = n, e.Time
}

// flush returns the lines of an interval and begins the next interval.
func (s *sampler) flush() (all []Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.kinds {
		if e.Count > 0 {
			e.Note = "requests like this one in the last " + sampleEvery.String()
			all = append(all, *e)
		}
	}
	clear(s.kinds)
	clear(s.sources)
	return all
}
