package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/objects/agents"
	"github.com/forkd/forkd/internal/kube/objects/extensions"
	"github.com/forkd/forkd/internal/kube/objects/forkdkinds"
)

// program starts a program in a sandbox, which counts in its memory. counts returns its count.
func (w *world) program(id string) {
	w.t.Helper()
	w.exec(id, "sh", "-c", `(n=0; while sleep 0.1; do n=$((n + 1)); echo $$ $n > /tmp/count; done) >/dev/null 2>&1 &
		until [ -s /tmp/count ]; do sleep 0.1; done`)
}

// goesOn checks that the program counts on from at least a number, and returns where it is.
func (w *world) goesOn(id string, from int) (count int) {
	w.t.Helper()
	w.within(30*time.Second, func() string { return fmt.Sprintf("the program of %s counts on from %d, is at %d", id, from, count) }, func() bool {
		out, err := w.forkd.Exec(w.t.Context(), id, api.ExecRequest{Args: []string{"cat", "/tmp/count"}})
		if err != nil {
			return false
		}
		var pid, n int
		if _, err := fmt.Sscan(out.Stdout, &pid, &n); err == nil {
			count = n
		}
		return count > from
	})
	return count
}

func (w *world) mode(sb *agents.Sandbox, mode, condition string) {
	w.t.Helper()
	w.change(sb, func() { sb.Spec.OperatingMode = mode })
	await(w, sb, "the Sandbox is "+mode, func() bool { return meta.IsStatusConditionTrue(sb.Status.Conditions, condition) })
}

// A drained node keeps its suspended sandboxes until they are resumed: at another node.
func aSuspendedSandboxGoesOnAtAnotherNode(t *testing.T, s site) {
	w := s.start(t, 3)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	c := newClaim("team-a", "one", "pool")
	w.create(c)
	w.ready(c)
	id, count := c.Status.Sandbox.Name, 0
	if err := w.forkd.Upload(t.Context(), id, "/tmp/note", "", strings.NewReader("kept")); err != nil {
		t.Fatal(err)
	}
	if s.vms != nil { // a fake engine has no processes
		w.program(id)
		count = w.goesOn(id, 2)
	}
	sb := &agents.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: id}}
	await(w, sb, "the Sandbox names its node", func() bool { return sb.Status.NodeName != "" })
	from := sb.Status.NodeName
	w.mode(sb, agents.Suspended, agents.IsSuspended)
	if _, err := w.client(from).Drain(t.Context(), api.DrainRequest{Mode: api.DrainWait}); err != nil {
		t.Fatal(err)
	}
	w.mode(sb, agents.Running, agents.Ready)
	await(w, sb, "the Sandbox is on another node", func() bool { return sb.Status.NodeName != from })
	w.ready(c)
	vm, err := w.forkd.Sandbox(t.Context(), id)
	if err != nil || vm.Node != sb.Status.NodeName || vm.Status != api.SandboxRunning {
		t.Errorf("sandbox %s is %s on %s, %v, the object has node %s", id, vm.Status, vm.Node, err, sb.Status.NodeName)
	}
	if out := w.exec(id, "cat", "/tmp/note"); s.vms != nil && out != "kept" {
		t.Errorf("the file is %q", out)
	}
	if s.vms != nil {
		w.goesOn(id, count)
	}
	w.delete(c)
	w.gone(sb)
	w.sandboxes(0)
}

// Daemons are killed while they fork. Their VMs run on, and every object has its sandboxes at the end.
func vmsOutliveTheirDaemon(t *testing.T, s site) {
	w := s.start(t, 3)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	l := &load{w: w, claims: map[string]bool{}, forks: map[string]bool{}, acknowledged: map[string]string{}}
	counts := map[string]int{}
	for i := range 4 {
		c := newClaim("team-a", fmt.Sprintf("c%d", i), "pool")
		w.create(c)
		id := w.ready(c).Status.Sandbox.Name
		l.claims[c.Name], l.acknowledged[c.Name] = true, id
		w.program(id)
		counts[id] = w.goesOn(id, 2)
	}
	var forks []*forkdkinds.SandboxFork
	for i, node := range w.cluster.Nodes {
		f := newFork("team-a", fmt.Sprintf("f%d", i), 12, forkdkinds.ForkSource{Snapshot: tag})
		w.create(f)
		forks, l.forks[f.Name] = append(forks, f), true
		time.Sleep(time.Duration(i) * 400 * time.Millisecond) // elapses: the kill comes at another moment of the fork
		s.vms.kill(t, daemon(node.Name))
		s.vms.ready(t, node.Name)
	}
	for _, f := range forks {
		complete(w, f)
		if f.Status.Ready != 12 {
			t.Errorf("fork %s has %d of 12 children ready: %+v", f.Name, f.Status.Ready, f.Status.Children)
		}
	}
	w.settle(l)
	for id, n := range counts {
		w.goesOn(id, n)
	}
	for _, f := range forks {
		w.delete(f)
		w.gone(f)
	}
	w.sandboxes(len(counts))
}

// A container that ends takes its VMs with it. Their claims say so, and the node is used again.
func aLostNodesClaimsAreReported(t *testing.T, s site) {
	w := s.start(t, 2)
	w.operate(nil)
	w.pool("team-a", "pool", 0, nil)
	on := map[string][]*extensions.SandboxClaim{}
	for i := range 12 {
		c := newClaim("team-a", fmt.Sprintf("c%d", i), "pool")
		w.create(c)
		id := w.ready(c).Status.Sandbox.Name
		vm, err := w.forkd.Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		on[vm.Node] = append(on[vm.Node], c)
	}
	if len(on["node-a"]) == 0 || len(on["node-b"]) == 0 {
		t.Fatalf("all claims are on one node: %d and %d", len(on["node-a"]), len(on["node-b"]))
	}
	s.vms.kill(t, container("node-a"))
	time.Sleep(3 * time.Second) // elapses: comparisons without the node
	s.vms.start(t, "node-a")
	for _, c := range on["node-a"] {
		await(w, c, "the claim reports the end", reason(&c.Status.Conditions, agents.PodFailed, nil))
		w.delete(c)
		w.gone(c)
	}
	for _, c := range on["node-b"] {
		w.ready(c)
		if out := w.exec(c.Status.Sandbox.Name, "echo", "here"); out != "here\n" {
			t.Errorf("%s answers %q", c.Name, out)
		}
	}
	f := newFork("team-a", "again", 8, forkdkinds.ForkSource{Snapshot: tag})
	w.create(f)
	complete(w, f)
	w.delete(f)
	w.gone(f)
	w.sandboxes(len(on["node-b"]))
}
