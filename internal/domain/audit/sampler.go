package audit

import (
	"sync"
	"time"
)

// Bounds of a sampler. They keep what anonymous clients can write below about 20 lines a second.
const (
	sampleEvery  = 10 * time.Second
	maxOfSource  = 4  // kinds of one source in an interval
	maxAnonymous = 64 // kinds of all sources in an interval
	maxTraffic   = 512
)

// kind is what counted entries have in common.
type kind struct {
	source, action string
	result         Result
	status         int
}

// sampler passes the first entry of a kind in each interval, and counts the others.
type sampler struct {
	most int // kinds in an interval

	mu      sync.Mutex
	kinds   map[kind]*Entry // Count is the number of entries that were held back
	sources map[string]int  // kinds of each
}

func newSampler(most int) *sampler {
	return &sampler{most: most, kinds: map[kind]*Entry{}, sources: map[string]int{}}
}

// take reports whether an entry is to be written now. Otherwise it is counted.
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
			k.source = "" // of too many sources
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

// count adds an entry to a line. The line keeps the newest entry's fields, except for others.
func count(to *Entry, e Entry) {
	n := to.Count + 1
	if to.Action != ActionOthers {
		*to = e
	}
	to.Count, to.Time = n, e.Time
}

// flush returns the lines of an interval, and begins the next.
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
