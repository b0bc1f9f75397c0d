package placement

import (
	"math/rand/v2"
	"sync"
	"time"
)

// DiskFloor is the free part of a node's file system that snapshots and sandboxes leave.
const DiskFloor = 0.15

// Config are the settings of a board. Zero values mean the defaults.
type Config struct {
	// Sample is the number of nodes compared for one question. Default 3.
	Sample int
	// Tries is the number of nodes asked for one claim. Default 8.
	Tries int
	// Repeats is the number of repetitions at the same node after time-outs. Default 2.
	Repeats int
	// Stale is the age at which facts no longer count. Default 40 s.
	Stale time.Duration
	// DiskFloor is the free part of the disk below which a node gets no sandbox. Default DiskFloor.
	DiskFloor float64
	// Slack is the load, relative to the least used node of a sample, up to which snapshots on the node decide.
	// Default 0.05.
	Slack float64
	// Linger is the time a node may still work on a request without an answer. Its memory stays promised meanwhile.
	// Default 1 min.
	Linger time.Duration
	// Now returns the time. Default time.Now.
	Now func() time.Time
	// Random is the source of the samples. The board guards it by its lock. Default: a random seed.
	Random *rand.Rand
}

func (c Config) withDefaults() Config {
	c.Sample = orDefault(c.Sample, 3)
	c.Tries = orDefault(c.Tries, 8)
	c.Repeats = orDefault(c.Repeats, 2)
	c.Stale = orDefault(c.Stale, 40*time.Second)
	c.DiskFloor = orDefault(c.DiskFloor, DiskFloor)
	c.Slack = orDefault(c.Slack, 0.05)
	c.Linger = orDefault(c.Linger, time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) // #nosec G404 -- placement, no secret
	}
	return c
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Board is one gateway's view of all nodes. Its methods are safe for concurrent use.
type Board struct {
	cfg Config

	mu     sync.Mutex // guards the fields below, cfg.Random and the fields of all nodes
	byName map[string]*node
	nodes  []*node
}

// node is the view of one node.
type node struct {
	facts    Facts
	at       int // index in Board.nodes
	features map[string]bool
	// promised is the memory of all reservations, doubtful the part possibly included in the facts. taken is their
	// number of sandboxes by snapshot.
	promised int64
	doubtful int64
	taken    map[string]int64
	held     []*reservation
	// full is the smallest request the node refused for lack of memory since its facts; 0 means none.
	full   int64
	fullAt time.Time
	// shunned is the end of a pause after a refusal; failures counts refusals in a row.
	shunned  time.Time
	failures int
}

// reservation is memory promised to one claim, until facts of the node include it.
type reservation struct {
	snapshot string
	count    int64
	memory   int64
	// opened is the time of the question. doubtful is set by facts taken between question and answer: the node may
	// or may not have counted the sandboxes.
	opened   time.Time
	doubtful bool
	// settled is the time from which new facts include the sandboxes; zero while the question is open.
	settled time.Time
}

// New returns an empty board.
func New(cfg Config) *Board {
	return &Board{cfg: cfg.withDefaults(), byName: map[string]*node{}}
}

// Observe replaces the facts of a node. It ignores facts older than the present ones.
func (b *Board) Observe(f Facts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.byName[f.Name]
	if n == nil {
		n = &node{at: len(b.nodes), taken: map[string]int64{}}
		b.byName[f.Name] = n
		b.nodes = append(b.nodes, n)
	} else if f.Asked.Before(n.facts.Asked) {
		return
	}
	// A node may send any figure; sums of bounded ones do not overflow.
	f.Capacity, f.Used = clamp(f.Capacity), clamp(f.Used)
	n.facts = f
	n.features = make(map[string]bool, len(f.CPUFeatures))
	for _, c := range f.CPUFeatures {
		n.features[c] = true
	}
	if f.Asked.After(n.fullAt) {
		n.full = 0
	}
	n.forgetSettled(f.Asked)
}

// Forget removes a node. Open claims at it end as usual.
func (b *Board) Forget(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.byName[name]
	if n == nil {
		return
	}
	delete(b.byName, name)
	last := b.nodes[len(b.nodes)-1]
	b.nodes[n.at], last.at = last, n.at
	b.nodes = b.nodes[:len(b.nodes)-1]
}

// forgetSettled drops the reservations included in facts asked for at this time.
func (n *node) forgetSettled(asked time.Time) {
	kept := n.held[:0]
	for _, r := range n.held {
		if r.settled.IsZero() || !asked.After(r.settled) {
			kept = append(kept, r)
			if !r.doubtful && !asked.Before(r.opened) {
				r.doubtful = true
				n.doubtful += r.memory
			}
			continue
		}
		n.subtract(r)
	}
	clear(n.held[len(kept):])
	n.held = kept
}

func (n *node) add(r *reservation) {
	n.held = append(n.held, r)
	n.promised += r.memory
	n.taken[r.snapshot] += r.count
}

func (n *node) subtract(r *reservation) {
	n.promised -= r.memory
	if r.doubtful {
		n.doubtful -= r.memory
	}
	if n.taken[r.snapshot] -= r.count; n.taken[r.snapshot] <= 0 {
		delete(n.taken, r.snapshot)
	}
}

// release drops a reservation of a node which made no sandbox.
func (n *node) release(r *reservation) {
	for i, h := range n.held {
		if h == r {
			n.held[i] = n.held[len(n.held)-1]
			n.held[len(n.held)-1] = nil
			n.held = n.held[:len(n.held)-1]
			n.subtract(r)
			return
		}
	}
}

// mostMemory is 1 EiB.
const mostMemory = 1 << 40

func clamp(memory int64) int64 { return min(max(memory, 0), mostMemory) }

func (n *node) used() int64 { return n.facts.Used + n.promised }

// marginal returns the memory the request adds to the node.
func (n *node) marginal(r Request) int64 {
	memory := clamp(clamp(r.Unique) * r.count())
	if n.taken[r.Snapshot] == 0 && !n.facts.Snapshots[r.Snapshot].Running {
		memory += clamp(r.Base)
	}
	return memory
}
