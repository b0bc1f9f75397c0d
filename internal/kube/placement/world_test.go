package placement

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// world simulates nodes and gateways in virtual time. It has one goroutine, so a seed determines the run.
type world struct {
	t        *testing.T
	now      time.Time
	random   *rand.Rand
	nodes    []*simNode
	byName   map[string]*simNode
	gateways []*Board
	queue    queue
	seq      int
	every    time.Duration // between two questions for facts

	placed, unknown int
	failed          []error
	questions       map[string]int // by node
}

type simNode struct {
	Facts
	claims     int64 // capacity in its facts, if it lies
	made       map[string]bool
	bases      map[string]bool
	dead       bool
	latency    time.Duration
	lost       float64 // part of the requests or answers that are lost
	unanswered int
}

type event struct {
	at  time.Time
	seq int // events of the same time keep their order
	do  func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(e any)   { *q = append(*q, e.(event)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func newWorld(t *testing.T, seed uint64, nodes, gateways int, capacity int64) *world {
	t.Helper()
	w := &world{t: t, now: time.Unix(1e9, 0), random: rand.New(rand.NewPCG(seed, 1)), byName: map[string]*simNode{},
		every: 2 * time.Second, questions: map[string]int{}}
	for i := range nodes {
		n := &simNode{Facts: Facts{Name: fmt.Sprintf("node-%03d", i), Capacity: capacity, DiskFree: 0.5,
			Snapshots: map[string]Presence{}}, made: map[string]bool{}, bases: map[string]bool{}, latency: 5 * time.Millisecond}
		w.nodes, w.byName[n.Name] = append(w.nodes, n), n
	}
	for g := range gateways {
		w.gateways = append(w.gateways, New(Config{Now: func() time.Time { return w.now },
			Random: rand.New(rand.NewPCG(seed, uint64(g)+2))}))
	}
	return w
}

// watch has all gateways ask all nodes for facts, spread over the interval.
func (w *world) watch() {
	for g, b := range w.gateways {
		for i, n := range w.nodes {
			w.observe(b, n)
			offset := w.every * time.Duration(i*len(w.gateways)+g) / time.Duration(len(w.nodes)*len(w.gateways))
			w.after(offset, func() { w.poll(b, n) })
		}
	}
}

func (w *world) poll(b *Board, n *simNode) {
	w.observe(b, n)
	w.after(w.every, func() { w.poll(b, n) })
}

func (w *world) observe(b *Board, n *simNode) {
	if n.dead {
		return
	}
	f := n.Facts
	f.Asked = w.now
	if n.claims != 0 {
		f.Capacity, f.Used = n.claims, 0
	}
	f.Snapshots = make(map[string]Presence, len(n.Snapshots))
	for k, v := range n.Snapshots {
		f.Snapshots[k] = v
	}
	b.Observe(f)
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now.Add(d), w.seq, do})
}

// run handles events for this long.
func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); len(w.queue) > 0 && w.queue[0].at.Before(end); {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
}

// claims starts count claims at this distance, over the gateways in turn, and runs until all of them have ended.
func (w *world) claims(count int, distance time.Duration, request func(i int) Request) {
	var next func(i int)
	next = func(i int) {
		if i == count {
			return
		}
		r := request(i)
		if r.ID == "" {
			r.ID = fmt.Sprintf("r%d", i)
		}
		w.step(w.gateways[i%len(w.gateways)].Claim(r))
		w.after(distance, func() { next(i + 1) })
	}
	before := w.placed + w.unknown + len(w.failed)
	next(0)
	w.run(distance * time.Duration(count))
	for range 1000 {
		if w.placed+w.unknown+len(w.failed) == before+count {
			return
		}
		w.run(time.Second)
	}
	w.t.Fatalf("%d claims have no end", before+count-w.placed-w.unknown-len(w.failed))
}

func (w *world) step(c *Claim) {
	name, err := c.Next()
	if err != nil {
		w.failed = append(w.failed, err)
		return
	}
	w.questions[name]++
	n := w.byName[name]
	w.after(time.Millisecond, func() {
		took, err := w.answer(n, c.req)
		w.after(took, func() {
			switch done, err := c.Result(err); {
			case !done:
				w.step(c)
			case err == nil:
				w.placed++
			default:
				var unknown *UnknownError
				if errors.As(err, &unknown) {
					w.unknown++
				} else {
					w.failed = append(w.failed, err)
				}
			}
		})
	})
}

// answer is the node's part: it makes a request's sandboxes once.
func (w *world) answer(n *simNode, r Request) (time.Duration, error) {
	const timeout = 30 * time.Second
	if n.dead {
		return time.Millisecond, &Refusal{Unreachable, errors.New("connection refused")}
	}
	if w.random.Float64() < n.lost {
		return timeout, context.DeadlineExceeded // the request is lost
	}
	if !n.made[r.ID] {
		memory := r.Unique * r.count()
		if !n.bases[r.Snapshot] {
			memory += r.Base
		}
		if n.Used+memory > n.Capacity {
			return n.latency, &Refusal{Full, errors.New("no memory")}
		}
		n.Used += memory
		n.made[r.ID], n.bases[r.Snapshot] = true, true
		p := n.Snapshots[r.Snapshot]
		n.Snapshots[r.Snapshot] = Presence{Bytes: 100, BytesPresent: 100, Running: true, Prepared: p.Prepared}
	}
	if w.random.Float64() < n.lost {
		n.unanswered++
		return timeout, context.DeadlineExceeded // the answer is lost
	}
	return n.latency, nil
}

// balanced checks the number of sandboxes of living nodes against their mean. A node which loses many requests may have
// fewer, but not more.
func (w *world) balanced(within float64) {
	w.t.Helper()
	sum, living, least, most := 0, 0, int(^uint(0)>>1), 0
	for _, n := range w.nodes {
		if !n.dead && n.claims == 0 {
			sum, living = sum+len(n.made), living+1
			most = max(most, len(n.made))
			if n.lost < 0.1 {
				least = min(least, len(n.made))
			}
		}
	}
	mean := float64(sum) / float64(living)
	w.t.Logf("sandboxes per node: %d to %d, mean %.1f", least, most, mean)
	if float64(most) > mean*(1+within) || float64(least) < mean*(1-within) {
		w.t.Errorf("sandboxes per node: %d to %d, want within %.0f %% of %.1f", least, most, 100*within, mean)
	}
}

// allPlaced checks for claims without a sandbox.
func (w *world) allPlaced(want int) {
	w.t.Helper()
	if len(w.failed) > 0 {
		w.t.Errorf("%d claims failed while capacity was there; the first: %v", len(w.failed), w.failed[0])
	}
	if w.placed+w.unknown != want {
		w.t.Errorf("%d placed, %d unknown, want %d in all", w.placed, w.unknown, want)
	}
}

// madeOnce checks for request ids at two nodes.
func (w *world) madeOnce() int {
	w.t.Helper()
	at := map[string]string{}
	for _, n := range w.nodes {
		for id := range n.made {
			if at[id] != "" {
				w.t.Errorf("%s was made at %s and %s", id, at[id], n.Name)
			}
			at[id] = n.Name
		}
	}
	return len(at)
}
