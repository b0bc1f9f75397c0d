package preload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// world is a cluster with a clock of its own, in a bubble of synctest.
type world struct {
	t *testing.T
	p *Preloader

	mu    sync.Mutex // guards the fields below
	nodes []Node
	fail  map[string]error // by node
	lag   bool             // facts do not show copies
	asked []string
	now   map[string]int // running copies by snapshot
	most  int            // of one snapshot at the same time
	sum   int            // of all at the same time
	peers map[string][]string
}

// within runs a test in a world of n nodes, of which the first has the snapshots.
func within(t *testing.T, n int, test func(*testing.T, *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, p: New(time.Now), fail: map[string]error{}, now: map[string]int{}, peers: map[string][]string{}}
		for i := range n {
			w.nodes = append(w.nodes, Node{Name: string(rune('a' + i)), URL: "http://" + string(rune('a'+i)), Seen: time.Now(),
				Recent: true, Up: true, Takes: true, Selected: true})
		}
		w.nodes[0].Has, w.nodes[0].Bytes = true, 100
		test(t, w)
		w.p.Close()
	})
}

func (w *world) job(id string, want int) Job {
	return Job{ID: id, Want: want, Copy: func(ctx context.Context, node string, peers []string) error {
		return w.copy(ctx, id, node, peers)
	}, Code: func(err error) string { return err.Error() }, Ended: func() {}}
}

// copy takes a second.
func (w *world) copy(ctx context.Context, id, node string, peers []string) error {
	w.mu.Lock()
	w.asked, w.peers[node] = append(w.asked, node), peers
	w.now[id]++
	total := 0
	for _, n := range w.now {
		w.most, total = max(w.most, n), total+n
	}
	w.sum = max(w.sum, total)
	err := w.fail[node]
	w.mu.Unlock()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now[id]--
	if err == nil && !w.lag {
		w.node(node, func(n *Node) { n.Has, n.Bytes = true, 100 })
	}
	return err
}

func (w *world) node(name string, change func(*Node)) {
	i := slices.IndexFunc(w.nodes, func(n Node) bool { return n.Name == name })
	change(&w.nodes[i])
}

// step looks once, and again each second for a time.
func (w *world) step(j Job, during time.Duration) (r Report) {
	for until := time.Now().Add(during); ; time.Sleep(time.Second) { // elapses: in the bubble only
		synctest.Wait()
		w.mu.Lock()
		for i := range w.nodes {
			w.nodes[i].Seen = time.Now()
		}
		now := slices.Clone(w.nodes)
		w.mu.Unlock()
		if r = w.p.Step(j, now); !time.Now().Before(until) {
			return r
		}
	}
}

func states(r Report) string {
	var out []string
	for _, row := range r.Rows {
		out = append(out, row.Name+" "+string(row.State))
	}
	return strings.Join(out, ", ")
}

func (w *world) want(r Report, ready int, reason, rows string) {
	w.t.Helper()
	if r.Ready != ready || r.Reason != reason || rows != "" && states(r) != rows {
		w.t.Errorf("%d ready, %s (%s), %s, want %d, %s, %s", r.Ready, r.Reason, r.Message, states(r), ready, reason, rows)
	}
}

func TestNodesCopyUntilEnoughHaveIt(t *testing.T) {
	within(t, 6, func(t *testing.T, w *world) {
		j := w.job("s", 5)
		r := w.step(j, 0)
		w.want(r, 1, InCopy, "")
		if n := strings.Count(states(r), "Copying"); n != mostOfOne || !r.Waits {
			t.Errorf("%d copies at once: %+v", n, r)
		}
		w.want(w.step(j, 10*time.Second), 5, Distributed, "")
		if len(w.asked) != 4 || w.most > mostOfOne {
			t.Errorf("asked %v, %d at once", w.asked, w.most)
		}
		w.want(w.step(w.job("s", 1), time.Minute), 5, Distributed, "")
		w.want(w.step(w.job("s", 6), 10*time.Second), 6, Distributed, "a Ready, b Ready, c Ready, d Ready, e Ready, f Ready")
		if len(w.asked) != 5 {
			t.Errorf("asked %v", w.asked)
		}
	})
}

func TestCopiesOfAllSnapshotsAreBounded(t *testing.T) {
	within(t, 12, func(t *testing.T, w *world) {
		for i := range 10 {
			w.step(w.job(fmt.Sprint(i), 12), 0)
		}
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.sum != mostOfAll {
			t.Errorf("%d copies at once, want %d", w.sum, mostOfAll)
		}
	})
}

func TestACopyCountsBeforeFactsShowIt(t *testing.T) {
	within(t, 2, func(t *testing.T, w *world) {
		w.lag = true
		j := w.job("s", 2)
		w.step(j, 0)
		time.Sleep(1500 * time.Millisecond) // elapses: in the bubble only
		synctest.Wait()
		old := slices.Clone(w.nodes) // facts from before the copy
		w.want(w.p.Step(j, old), 2, Distributed, "a Ready, b Ready")
		old[1].Seen = time.Now().Add(time.Second)
		old[1].More = true
		w.want(w.p.Step(j, old), 2, Distributed, "a Ready, b Ready")
		old[1].More = false // the node has lost it
		w.want(w.p.Step(j, old), 1, InCopy, "a Ready, b Copying")
	})
}

func TestAFailureLeadsToAnotherNode(t *testing.T) {
	within(t, 4, func(t *testing.T, w *world) {
		for _, n := range w.nodes[1:3] {
			w.fail[n.Name] = errors.New("no_space")
		}
		r := w.step(w.job("s", 2), 20*time.Second)
		if r.Ready != 2 || !w.nodes[3].Has {
			t.Errorf("%+v", r)
		}
		for _, row := range r.Rows {
			if row.State == Failed && (row.Code != "no_space" || row.Message != "no_space") {
				t.Errorf("%+v", row)
			}
		}
		r = w.step(w.job("s", 4), time.Minute)
		w.want(r, 2, CopyFailed, "a Ready, d Ready, b Failed, c Failed")
		if !strings.Contains(r.Message, "b: no_space; c: no_space") {
			t.Error(r.Message)
		}
	})
}

func TestNodesThatFailAreAskedAgainEverMoreRarely(t *testing.T) {
	within(t, 8, func(t *testing.T, w *world) {
		for _, n := range w.nodes[1:] {
			w.fail[n.Name] = errors.New(strings.Repeat("é", 1000))
		}
		j := w.job("s", 3)
		r := w.step(j, time.Hour)
		// One after 10 s, 20 s, … 10 min: at most 12 questions to each node.
		if n := len(w.asked); n < 21 || n > 7*12 {
			t.Errorf("asked %d times", n)
		}
		if len(r.Rows) != 8 || len(r.Rows[1].Message) > maxText+4 {
			t.Errorf("%+v", r)
		}
		w.fail = nil
		w.want(w.step(j, longest+calm), 3, Distributed, "")
	})
}

// A snapshot that no node takes does not go through all nodes at once.
func TestManyFailuresInARowMakeAPause(t *testing.T) {
	within(t, 20, func(t *testing.T, w *world) {
		for _, n := range w.nodes[1:] {
			w.fail[n.Name] = errors.New("not_restorable")
		}
		j := w.job("s", 2)
		r := w.step(j, 9*time.Second)
		if w.want(r, 1, InCopy, ""); len(w.asked) != patience || !r.Waits {
			t.Errorf("asked %v, %+v", w.asked, r)
		}
		w.step(j, 20*calm)
		for _, n := range w.nodes[1:] {
			if !slices.Contains(w.asked, n.Name) {
				t.Errorf("%s was not asked", n.Name)
			}
		}
	})
}

func TestLostAndDrainedNodesAreReplaced(t *testing.T) {
	within(t, 5, func(t *testing.T, w *world) {
		j := w.job("s", 3)
		w.want(w.step(j, 5*time.Second), 3, Distributed, "")
		var others []string
		for _, n := range w.nodes[1:] {
			if n.Has {
				others = append(others, n.Name)
			}
		}
		w.node(others[0], func(n *Node) { n.Takes = false })
		w.node(others[1], func(n *Node) { n.Recent, n.Up = false, false })
		r := w.step(j, 5*time.Second)
		w.want(r, 3, Distributed, "")
		if got := states(r); !strings.Contains(got, others[0]+" Draining") || !strings.Contains(got, others[1]+" Silent") {
			t.Error(got)
		}
		w.node("a", func(n *Node) { n.Selected = false })
		r = w.step(j, 5*time.Second)
		w.want(r, 2, TooFewNodes, "")
		if !strings.Contains(states(r), "a NotSelected") {
			t.Error(states(r))
		}
	})
}

func TestACopyEndsWithItsNode(t *testing.T) {
	within(t, 2, func(t *testing.T, w *world) {
		j := w.job("s", 2)
		w.want(w.step(j, 0), 1, InCopy, "a Ready, b Copying")
		w.node("b", func(n *Node) { n.Recent, n.Up = false, false })
		w.step(j, 0)
		synctest.Wait()
		r := w.step(j, 0)
		w.want(r, 1, TooFewNodes, "a Ready")
		if !strings.HasSuffix(r.Message, "others: 1 silent") {
			t.Error(r.Message)
		}
		w.node("b", func(n *Node) { n.Recent, n.Up = true, true })
		w.want(w.step(j, 3*time.Second), 2, Distributed, "a Ready, b Ready")
	})
}

func TestReasons(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Node)
		text   string
	}{
		"drained":      {func(n *Node) { n.Takes = false }, "1 draining"},
		"labels":       {func(n *Node) { n.Selected = false }, "1 not selected"},
		"full":         {func(n *Node) { n.DiskTotal, n.DiskFree = 1000, 249 }, "1 short of disk space"},
		"silent":       {func(n *Node) { n.Recent = false }, "1 silent"},
		"just silent":  {func(n *Node) { n.Up = false }, "1 silent"},
		"just fitting": {func(n *Node) { n.DiskTotal, n.DiskFree = 1000, 250 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, 2, func(t *testing.T, w *world) {
				w.node("b", tt.change)
				r := w.step(w.job("s", 2), 3*time.Second)
				if tt.text == "" {
					w.want(r, 2, Distributed, "a Ready, b Ready")
				} else if w.want(r, 1, TooFewNodes, "a Ready"); !strings.Contains(r.Message, tt.text) {
					t.Error(r.Message)
				}
			})
		})
	}
	within(t, 2, func(t *testing.T, w *world) {
		w.node("a", func(n *Node) { n.Recent, n.Up = false, false })
		w.want(w.step(w.job("s", 1), 3*time.Second), 0, NoSource, "a Silent")
	})
	within(t, 1, func(t *testing.T, w *world) {
		if r := w.step(w.job("s", 2), 0); r.Reason != TooFewNodes || !strings.HasSuffix(r.Message, "others: none") {
			t.Errorf("%+v", r)
		}
	})
}

func TestPeersAreManyAndDrainingOnesAreLast(t *testing.T) {
	within(t, 20, func(t *testing.T, w *world) {
		for i := range 18 {
			w.node(string(rune('a'+i)), func(n *Node) { n.Has, n.Takes = true, i != 3 && i < 10 })
		}
		w.nodes[19].CPU = "Other"
		w.step(w.job("s", 10), 0)
		synctest.Wait()
		peers := w.peers["s"] // the 19th node: the last one has another processor
		if len(w.asked) != 1 || len(peers) != mostPeers {
			t.Fatalf("asked %v, with %v", w.asked, peers)
		}
		for _, n := range w.nodes[:10] {
			if at := slices.Index(peers, n.URL); n.Takes && at >= 9 {
				t.Errorf("%s is peer %d of %v", n.Name, at+1, peers)
			}
		}
	})
}

func TestRowsAreBounded(t *testing.T) {
	within(t, 200, func(t *testing.T, w *world) {
		for i := range w.nodes {
			w.nodes[i].Name, w.nodes[i].Has = fmt.Sprint("n", i), true
			w.nodes[i].Takes = i >= 100
		}
		r := w.step(w.job("s", 90), 0)
		if r.Ready != 100 || len(r.Rows) != maxRows || slices.ContainsFunc(r.Rows, func(r Row) bool { return r.State != Ready }) {
			t.Errorf("%d ready, %d rows", r.Ready, len(r.Rows))
		}
	})
}

func TestStopWaitsForCopies(t *testing.T) {
	within(t, 2, func(t *testing.T, w *world) {
		j := w.job("s", 2)
		w.step(j, 0)
		if w.p.Stop("s") {
			t.Error("a copy was under way")
		}
		synctest.Wait()
		if !w.p.Stop("s") || len(w.p.spreads) != 0 || w.nodes[1].Has {
			t.Errorf("after the end: %v, %+v", w.p.spreads, w.nodes)
		}
		w.step(j, 0)
		w.p.Close()
		if len(w.now) != 1 || w.now["s"] != 0 || w.p.all != 0 {
			t.Errorf("after Close: %v, %d", w.now, w.p.all)
		}
		if w.want(w.step(j, 0), 1, TooFewNodes, ""); len(w.asked) != 2 {
			t.Errorf("a copy after Close: %v", w.asked)
		}
	})
}
