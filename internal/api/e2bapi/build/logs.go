package build

import (
	"slices"
	"sync"
	"time"
)

// Limits of the logs of ended builds, of all owners.
const (
	keepLogs     = 100
	keepLogBytes = 256 << 20
	// entryCost is the memory of an entry without its text.
	entryCost = 128
)

// logs holds the logs of running builds, and the last logs of ended builds. All logs of one owner
// share one limit of bytes.
type logs struct {
	now  func() time.Time
	each int // bytes of one owner's logs

	mu    sync.Mutex // guards the fields below, and charged of each log; a log's own lock is taken first
	all   map[string]*log
	ended []*log         // oldest first
	bytes map[string]int // by owner
}

func newLogs(now func() time.Time, each int) *logs {
	return &logs{now: now, each: each, all: map[string]*log{}, bytes: map[string]int{}}
}

// begin adds the log of a build.
func (g *logs) begin(owner, id string) *log {
	l := &log{now: g.now, group: g, owner: owner, id: id}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all[id] = l
	return l
}

func (g *logs) get(id string) *log {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[id]
}

// end marks a log as complete, and drops the oldest complete logs that exceed the limits.
func (g *logs) end(l *log) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = append(g.ended, l)
	for {
		owner, over := g.excessLocked()
		if !over {
			return
		}
		g.dropLocked(g.ended[slices.IndexFunc(g.ended, func(l *log) bool { return l.owner == owner })])
	}
}

func (g *logs) dropLocked(l *log) {
	delete(g.all, l.id)
	g.ended = slices.DeleteFunc(g.ended, func(e *log) bool { return e == l })
	if g.bytes[l.owner] -= l.charged; g.bytes[l.owner] <= 0 {
		delete(g.bytes, l.owner)
	}
	l.charged = 0
}

// excessLocked returns an owner with too many complete logs. If only the total is too large, it
// returns the owner with the most.
func (g *logs) excessLocked() (owner string, over bool) {
	size, count, total := map[string]int{}, map[string]int{}, 0
	for _, l := range g.ended {
		size[l.owner] += l.charged
		count[l.owner]++
		total += l.charged
	}
	large, many := g.ended[0].owner, g.ended[0].owner
	for o := range size {
		if size[o] > g.each*2/5 { // the rest is for running builds
			return o, true
		}
		if size[o] > size[large] {
			large = o
		}
		if count[o] > count[many] {
			many = o
		}
	}
	if total > keepLogBytes {
		return large, true
	}
	return many, len(g.ended) > keepLogs
}

// charge counts n bytes of text and an entry against the owner's limit. It returns false if they do
// not fit. An eighth of the limit is reserved for entries of the build itself, which programs
// cannot use.
func (g *logs) charge(l *log, n int, own bool) bool {
	if g == nil {
		return true
	}
	limit := g.each
	if !own {
		limit -= g.each / 8
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n += entryCost
	if g.bytes[l.owner]+n > limit {
		return false
	}
	g.bytes[l.owner] += n
	l.charged += n
	return true
}
