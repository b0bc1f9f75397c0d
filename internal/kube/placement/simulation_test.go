package placement

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

const simNodes = 200

func small(int) Request { return Request{Snapshot: "s", Unique: 10} }

// popular returns requests for 20 snapshots. The first gets half of the claims, the second a quarter.
func (w *world) popular(int) Request {
	k := 0
	for k < 19 && w.random.IntN(2) == 0 {
		k++
	}
	return Request{Snapshot: fmt.Sprintf("s%d", k), Base: 100, Unique: 10}
}

func TestAMillionSandboxesSpreadEvenly(t *testing.T) {
	const perNode = 5000
	w := newWorld(t, 1, simNodes, 3, perNode*10*104/100+20*100)
	for k := range 20 {
		for i := range 10 { // each snapshot is on a twentieth of the nodes
			w.nodes[(k*10+i)%simNodes].Snapshots[fmt.Sprintf("s%d", k)] = Presence{Bytes: 100, BytesPresent: 100, Prepared: 50}
		}
	}
	w.watch()
	w.claims(simNodes*perNode, 100*time.Microsecond, w.popular)
	w.allPlaced(simNodes * perNode)
	w.balanced(0.10)
}

// A burst arrives before any gateway sees its effects.
func TestABurstDoesNotHerd(t *testing.T) {
	w := newWorld(t, 2, simNodes, 5, 1<<20)
	w.nodes[7].Snapshots["s"] = Presence{Bytes: 100, BytesPresent: 100, Prepared: 10}
	w.watch()
	w.claims(5000, 10*time.Microsecond, small)
	w.allPlaced(5000)
	if got := len(w.nodes[7].made); got > 5*25 {
		t.Errorf("the holder got %d of 5000 sandboxes", got)
	}
	most := 0
	for _, n := range w.nodes {
		most = max(most, len(n.made))
	}
	t.Logf("most sandboxes on a node %d, mean 25; holder %d", most, len(w.nodes[7].made))
	if most > 40 {
		t.Errorf("a node got %d sandboxes of a burst, mean 25", most)
	}
}

func TestDeadNodes(t *testing.T) {
	const perNode = 500
	w := newWorld(t, 3, simNodes, 3, perNode*10*12/10)
	w.watch()
	w.after(20*time.Second, func() {
		for i := range 10 {
			w.nodes[i*20].dead = true
		}
	})
	w.claims(simNodes*perNode, time.Millisecond, small)
	w.allPlaced(simNodes * perNode)
	w.balanced(0.10)
	w.madeOnce()
	for i := range 10 {
		dead := w.nodes[i*20]
		if tried := w.questions[dead.Name] - len(dead.made); tried > 60 {
			t.Errorf("%s was asked %d times after its death", dead.Name, tried)
		}
	}
}

func TestSlowNodes(t *testing.T) {
	const perNode = 500
	w := newWorld(t, 4, simNodes, 3, perNode*10*12/10)
	for i := range 10 {
		w.nodes[i*20].latency = 20 * time.Second
	}
	w.watch()
	w.claims(simNodes*perNode, time.Millisecond, small)
	w.allPlaced(simNodes * perNode)
	w.balanced(0.10)
}

func TestTimeOutsMakeNoSandboxTwice(t *testing.T) {
	const perNode = 500
	w := newWorld(t, 5, simNodes, 3, perNode*10*12/10)
	for _, n := range w.nodes {
		n.lost = 0.02
	}
	w.nodes[9].lost = 0.5
	w.watch()
	w.claims(simNodes*perNode, time.Millisecond, small)
	w.allPlaced(simNodes * perNode)
	made, unanswered := w.madeOnce(), 0
	for _, n := range w.nodes {
		unanswered += n.unanswered
	}
	if unanswered == 0 || w.unknown == 0 {
		t.Fatalf("%d answers lost and %d unknown ends: the test tests no time-outs", unanswered, w.unknown)
	}
	t.Logf("%d placed, %d unknown, %d made, %d answers lost", w.placed, w.unknown, made, unanswered)
	if made < w.placed || made > w.placed+w.unknown {
		t.Errorf("%d requests have sandboxes, want %d to %d", made, w.placed, w.placed+w.unknown)
	}
	w.balanced(0.10)
}

// Several gateways with old facts fill the nodes to 97 %.
func TestNoClaimIsRefusedWhileNodesHaveRoom(t *testing.T) {
	const perNode = 500
	w := newWorld(t, 6, simNodes, 3, perNode*10)
	w.watch()
	w.claims(simNodes*perNode*97/100, time.Millisecond, small)
	w.allPlaced(simNodes * perNode * 97 / 100)
}

// One gateway uses the last place, and then names the reason.
func TestTheLastPlaceIsFound(t *testing.T) {
	w := newWorld(t, 7, simNodes, 1, 200)
	w.watch()
	w.claims(simNodes*20, time.Millisecond, small)
	w.allPlaced(simNodes * 20)
	w.run(2 * w.every) // until all facts are new
	w.claims(1, time.Millisecond, func(int) Request { return Request{ID: "more", Snapshot: "s", Unique: 10} })
	var none *NoNodeError
	if len(w.failed) != 1 || !errors.As(w.failed[0], &none) || none.Reasons[lacksMemory] != simNodes {
		t.Errorf("a claim without room: %v", w.failed)
	}
}

// A node claims a thousand times its memory.
func TestALiarCostsFewQuestions(t *testing.T) {
	const perNode = 200
	w := newWorld(t, 8, simNodes, 3, perNode*10*12/10)
	liar := w.nodes[3]
	liar.claims, liar.Capacity = 1<<40, 100
	w.watch()
	w.claims((simNodes-1)*perNode, time.Millisecond, small)
	w.allPlaced((simNodes - 1) * perNode)
	w.balanced(0.10)
	wasted := w.questions[liar.Name] - len(liar.made)
	t.Logf("%d questions of %d went to the liar in vain", wasted, (simNodes-1)*perNode)
	if wasted > (simNodes-1)*perNode/100 {
		t.Errorf("%d questions of %d went to the liar", wasted, (simNodes-1)*perNode)
	}
}
