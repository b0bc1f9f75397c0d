package preload

import (
	"context"
	"sync"
	"time"
)

// Limits of copies.
const (
	mostOfOne = 2  // of one snapshot at the same time
	mostOfAll = 8  // of all snapshots
	mostPeers = 16 // named to a node
	copyTime  = 2 * time.Hour
	// A node that has failed is asked again after shortest, then twice as long, and so on up to longest.
	shortest = 10 * time.Second
	longest  = 10 * time.Minute
	// After so many failures in a row, other nodes are asked after a pause, too, of at most calm.
	patience = 4
	calm     = time.Minute
)

// Job is a snapshot to distribute.
type Job struct {
	// ID identifies it.
	ID string
	// Want is the number of nodes.
	Want int
	// Copy lets a node copy the snapshot from one of peers.
	Copy func(ctx context.Context, node string, peers []string) error
	// Code returns the code of an error of Copy.
	Code func(error) string
	// Ended is called when a copy has ended.
	Ended func()
}

// Preloader runs copies. Its methods are safe for concurrent use.
type Preloader struct {
	now func() time.Time

	mu      sync.Mutex // guards the fields below
	all     int        // running copies
	spreads map[string]*spread
	closed  bool
	copies  sync.WaitGroup
}

// spread is the memory about one snapshot.
type spread struct {
	running  map[string]*running
	placed   map[string]time.Time // ends of copies that facts do not show yet
	failures map[string]*failure
	row      int       // failures in a row
	pause    time.Time // no new copy before
}

// running is one copy.
type running struct {
	stop    context.CancelFunc
	stopped bool // its node does not count any more
}

// failure is the last one of a node.
type failure struct {
	code, text string
	times      int
	until      time.Time
}

// New returns a preloader. now is time.Now except in tests.
func New(now func() time.Time) *Preloader {
	return &Preloader{now: now, spreads: map[string]*spread{}}
}

// Step looks at the nodes, starts copies that are missing, and stops those to nodes that do not count any more.
func (p *Preloader) Step(j Job, nodes []Node) Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spreads[j.ID]
	if s == nil {
		s = &spread{running: map[string]*running{}, placed: map[string]time.Time{}, failures: map[string]*failure{}}
		p.spreads[j.ID] = s
	}
	now := p.now()
	s.forget(nodes)
	useful := s.stopUseless(nodes)
	v := s.look(j.ID, nodes, now)
	need, waits := j.Want-v.ready-useful, false
	for _, n := range v.takers {
		if need <= 0 || len(v.holders) == 0 || p.closed {
			break
		}
		if len(s.running) >= mostOfOne || p.all >= mostOfAll || now.Before(s.pause) {
			waits = true
			break
		}
		p.startLocked(j, s, n.Name, v.peers(n.Name))
		need--
		useful++
	}
	v = s.look(j.ID, nodes, now)
	return v.report(j.Want, useful, waits)
}

// has reports whether the node has the snapshot, or had it when a copy ended.
func (s *spread) has(n Node) bool {
	_, placed := s.placed[n.Name]
	return n.Has || placed
}

// forget drops what facts have overtaken, and what is about nodes that have left.
func (s *spread) forget(nodes []Node) {
	listed := map[string]Node{}
	for _, n := range nodes {
		listed[n.Name] = n
	}
	for name, at := range s.placed {
		n, ok := listed[name]
		if !ok || n.Has || n.Seen.After(at) && !n.More {
			delete(s.placed, name)
		}
	}
	for name := range s.failures {
		if n, ok := listed[name]; !ok || n.Has {
			delete(s.failures, name)
		}
	}
}

// stopUseless stops copies to nodes that do not count any more, and returns the number of the others.
func (s *spread) stopUseless(nodes []Node) (useful int) {
	usable := map[string]bool{}
	for _, n := range nodes {
		usable[n.Name] = n.usable()
	}
	for name, c := range s.running {
		if !c.stopped && !usable[name] {
			c.stopped = true
			c.stop()
		}
		if !c.stopped {
			useful++
		}
	}
	return useful
}

func (p *Preloader) startLocked(j Job, s *spread, node string, peers []string) {
	ctx, stop := context.WithTimeout(context.Background(), copyTime)
	c := &running{stop: stop}
	s.running[node] = c
	p.all++
	p.copies.Go(func() {
		err := j.Copy(ctx, node, peers)
		stop()
		p.mu.Lock()
		delete(s.running, node)
		p.all--
		s.note(node, c, err, j.Code, p.now())
		p.mu.Unlock()
		j.Ended()
	})
}

// note keeps the result of a copy.
func (s *spread) note(node string, c *running, err error, code func(error) string, now time.Time) {
	switch {
	case err == nil:
		s.placed[node] = now
		delete(s.failures, node)
		s.row = 0
	case c.stopped:
	default:
		f := s.failures[node]
		if f == nil {
			f = &failure{}
			s.failures[node] = f
		}
		f.code, f.text = code(err), clip(err.Error())
		f.until = now.Add(pauseAfter(f.times))
		f.times++
		if s.row++; s.row >= patience {
			s.pause = now.Add(min(pauseAfter(s.row-patience), calm))
		}
	}
}

// pauseAfter returns the pause after the first failure, the second, and so on.
func pauseAfter(times int) time.Duration { return min(shortest<<min(times, 10), longest) }

// Stop stops the copies of a snapshot, and reports whether all have ended. It then forgets the snapshot.
func (p *Preloader) Stop(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spreads[id]
	if s == nil {
		return true
	}
	for _, c := range s.running {
		c.stopped = true
		c.stop()
	}
	if len(s.running) > 0 {
		return false
	}
	delete(p.spreads, id)
	return true
}

// Close stops all copies and waits for their ends.
func (p *Preloader) Close() {
	p.mu.Lock()
	p.closed = true
	for _, s := range p.spreads {
		for _, c := range s.running {
			c.stopped = true
			c.stop()
		}
	}
	p.mu.Unlock()
	p.copies.Wait()
}
