package nodes

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/placement"
)

// Config are the settings of a set.
type Config struct {
	// Board receives the facts of the nodes.
	Board *placement.Board
	// Every is the mean interval of polls. Default 2 s.
	Every time.Duration
	// Longest is the longest interval of polls of a node that does not answer. Default 30 s.
	Longest time.Duration
	// Polled is called after each poll, with its error. It may be nil.
	Polled func(node string, err error)
	// Removed is called when a node has left the list. It may be nil.
	Removed func(node string)
	// Log receives changes of the list and of nodes' states. If nil, they are discarded.
	Log *slog.Logger
}

// Set is the current list of nodes. Its methods are safe for concurrent use.
type Set struct {
	cfg Config

	mu    sync.RWMutex // guards the fields below
	all   []*Node      // by name
	byKey map[sandbox.NodeKey]*Node
	stops map[string]context.CancelFunc
	err   error // of the last list
}

// NewSet returns an empty set.
func NewSet(c Config) *Set {
	if c.Every <= 0 {
		c.Every = 2 * time.Second
	}
	if c.Longest <= 0 {
		c.Longest = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Set{cfg: c, byKey: map[sandbox.NodeKey]*Node{}, stops: map[string]context.CancelFunc{}}
}

// Run follows a source and polls its nodes until ctx ends.
func (s *Set) Run(ctx context.Context, source Source) {
	var polls sync.WaitGroup
	defer polls.Wait()
	source.Run(ctx, func(list []Entry, err error) {
		if err == nil {
			err = s.replace(ctx, list, &polls)
		}
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		if err != nil {
			s.cfg.Log.Error("the list of nodes is not used; the former list stays in use", "error", err)
		}
	})
}

// replace makes a list the current one. Nodes with an unchanged entry keep their state.
func (s *Set) replace(ctx context.Context, list []Entry, polls *sync.WaitGroup) error {
	var made []*Node
	for _, e := range list {
		if n := s.byEntry(e); n != nil {
			made = append(made, n)
			continue
		}
		n, err := newNode(e)
		if err != nil {
			return err
		}
		made = append(made, n)
	}
	slices.SortFunc(made, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range s.all {
		if !slices.Contains(made, old) {
			s.stops[old.Name]()
			old.close()
			s.cfg.Board.Forget(old.Name)
			if s.cfg.Removed != nil {
				s.cfg.Removed(old.Name)
			}
			s.cfg.Log.Info("node left the list", "node", old.Name)
		}
	}
	s.byKey = map[sandbox.NodeKey]*Node{}
	for _, n := range made {
		s.byKey[n.Key()] = n
		if slices.Contains(s.all, n) {
			continue
		}
		turn, stop := context.WithCancel(ctx)
		s.stops[n.Name] = stop
		polls.Go(func() { s.follow(turn, n) })
		s.cfg.Log.Info("node joined the list", "node", n.Name, "key", n.Key(), "url", n.URL)
	}
	s.all = made
	return nil
}

func (s *Set) byEntry(e Entry) *Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, n := range s.all {
		if n.Entry == e {
			return n
		}
	}
	return nil
}

// follow polls one node.
func (s *Set) follow(ctx context.Context, n *Node) {
	for {
		asked := time.Now()
		facts, err := n.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		s.note(n, facts, asked, err)
		timer := time.NewTimer(s.pause(n))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-n.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// note keeps the result of a poll.
func (s *Set) note(n *Node, facts api.Node, asked time.Time, err error) {
	n.mu.Lock()
	before, known := n.err, !n.seen.IsZero()
	foreign := errors.As(err, new(errIdentity))
	n.other = foreign || n.other && err != nil
	if n.err = err; err != nil {
		n.fails++
	} else {
		n.facts, n.seen, n.fails = facts, asked, 0
	}
	n.mu.Unlock()
	if s.cfg.Polled != nil {
		s.cfg.Polled(n.Name, err)
	}
	if foreign {
		s.cfg.Board.Forget(n.Name)
	}
	switch {
	case err == nil:
		s.cfg.Board.Observe(board(n.Name, facts, asked))
		if before != nil || !known {
			s.cfg.Log.Info("node answers", "node", n.Name, "version", sandbox.Clip(facts.Version))
		}
	case before == nil || before.Error() != err.Error():
		s.cfg.Log.Warn("node is not usable", "node", n.Name, "error", err)
	}
}

// pause returns the time until the next poll, with jitter, so that gateways do not ask in step.
func (s *Set) pause(n *Node) time.Duration {
	n.mu.Lock()
	fails := n.fails
	n.mu.Unlock()
	d := min(s.cfg.Every<<min(fails, 10), max(s.cfg.Longest, s.cfg.Every))
	return time.Duration(float64(d) * (0.75 + rand.Float64()/2)) // #nosec G404 -- jitter, no secret
}

// All returns the nodes by name.
func (s *Set) All() []*Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all
}

// ByKey returns the node with a key, or nil.
func (s *Set) ByKey(key sandbox.NodeKey) *Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// ByName returns the node with a name, or nil.
func (s *Set) ByName(name string) *Node {
	for _, n := range s.All() {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Ready returns the reason why the set cannot serve, or nil.
func (s *Set) Ready() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.err != nil {
		return s.err
	}
	for _, n := range s.all {
		if n.Up() {
			return nil
		}
	}
	return errors.New("no node answers")
}
