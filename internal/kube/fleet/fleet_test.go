package fleet_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/kube/fleet"
	"github.com/forkd/forkd/internal/testing/fakecluster"
)

func start(t *testing.T) (*fakecluster.Cluster, *fleet.Fleet) {
	t.Helper()
	c := fakecluster.Start(t, 2, "py", nil)
	return c, newFleet(t, c)
}

func newFleet(t *testing.T, c *fakecluster.Cluster) *fleet.Fleet {
	t.Helper()
	forkd, err := client.New(client.Options{URL: c.URL, Token: fakecluster.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { forkd.Close() })
	return fleet.New(forkd)
}

var owner = fleet.Owner{Kind: "SandboxClaim", Namespace: "team-a", Name: "one", UID: "uid-1"}

func TestUsersLabelsDoNotReplaceTheOwners(t *testing.T) {
	got := owner.Labels(map[string]string{"app": "x", "kube.uid": "2", "kube.other": "1", "agents.x-k8s.io/a": "1",
		"extensions.agents.x-k8s.io/a": "1", "forkd.dev/a": "1", "example.org/forkd.dev": "1"})
	if len(got) != 6 || got["kube.uid"] != "uid-1" || got["app"] != "x" || got["example.org/forkd.dev"] != "1" {
		t.Errorf("labels are %v", got)
	}
}

func TestARepeatedForkMakesNoSecondSandbox(t *testing.T) {
	c, f := start(t)
	if _, err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := f.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.Sandboxes(); n[0]+n[1] != 1 || len(f.Of(owner)) != 1 {
		t.Errorf("the nodes have %v sandboxes, the fleet knows %d", n, len(f.Of(owner)))
	}
}

// An operator may end between two attempts. The second has a shorter time to the end of the sandbox.
func TestAnotherOperatorsForkIsFoundByItsLabels(t *testing.T) {
	c, f := start(t)
	end := api.SandboxLife{TTLSecs: 100}
	if _, err := f.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py", SandboxLife: end}); err != nil {
		t.Fatal(err)
	}
	other := newFleet(t, c)
	end.TTLSecs = 99
	_, err := other.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py", SandboxLife: end})
	if err == nil || client.CodeOf(err) == api.CodeInvalid {
		t.Errorf("the second attempt is %v, want an error to retry after", err)
	}
	if found, err := other.Find(t.Context(), owner); err != nil || len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
	if err := other.EndAll(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if n := c.Sandboxes(); n[0]+n[1] != 0 {
		t.Errorf("the nodes have %v sandboxes", n)
	}
}

// The gateway ends the children of a fork whose client breaks off.
func TestAForkGoesOnAfterItsFirstChildrenEnded(t *testing.T) {
	c, f := start(t)
	two := 2
	res, err := f.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py", N: &two})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Client().Kill(t.Context(), res.Sandboxes[0].ID); err != nil {
		t.Fatal(err)
	}
	other := newFleet(t, c)
	if _, err := other.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py", N: &two}); err == nil {
		t.Fatal("a repetition returned an ended child")
	}
	if there, err := other.Ask(t.Context(), owner); err != nil || len(there) != 1 {
		t.Fatalf("there are %v, %v, want the second child", there, err)
	}
	one := 1
	if res, err = other.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py", N: &one}); err != nil || len(res.OK()) != 1 {
		t.Fatalf("the missing child is %+v, %v", res, err)
	}
}

// If a proxy loses the answer of a node, the missing children are made at the next attempt.
func TestAForkWithASilentNodeIsTriedAgain(t *testing.T) {
	c, f := start(t)
	var silent atomic.Bool
	silent.Store(true)
	for _, n := range c.Nodes[:1] {
		n.Link.Hook(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if silent.Load() && r.Method == http.MethodPost && r.URL.Path == "/v1/sandboxes" {
				w.WriteHeader(http.StatusBadGateway) // of a proxy: the daemon may have made the children
				return
			}
			pass.ServeHTTP(w, r)
		})
		defer n.Link.Hook(nil)
	}
	count := 12
	for try := 1; ; try++ {
		there, err := f.Ask(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		missing := count - len(there)
		res, err := f.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py", N: &missing})
		if err == nil {
			if n := len(there) + len(res.OK()); n != count || try == 1 {
				t.Errorf("%d of %d children after %d attempts", n, count, try)
			}
			break
		}
		if try > 10 {
			t.Fatal(err)
		}
		silent.Store(try < 2)
	}
}

func TestASandboxOfASilentNodeIsNotGone(t *testing.T) {
	c, f := start(t)
	res, err := f.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py"})
	if err != nil {
		t.Fatal(err)
	}
	id := res.Sandboxes[0].ID
	for _, n := range c.Nodes {
		if n.Key == keyOf(id) {
			n.Link.Hook(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { panic(http.ErrAbortHandler) })
			defer n.Link.Hook(nil)
		}
	}
	if changed, err := f.Refresh(t.Context()); err != nil || len(changed) != 0 || len(f.Of(owner)) != 1 {
		t.Errorf("changed %v, %v, known %v: a missing node proves no end", changed, err, f.Of(owner))
	}
	if gone, err := f.Gone(t.Context(), id); err == nil || gone {
		t.Errorf("gone is %v, %v, want an error", gone, err)
	}
}

// A suspended sandbox of a node that is being drained goes on at another one, and stays its owner's.
func TestAResumeLeavesADrainedNode(t *testing.T) {
	c, f := start(t)
	res, err := f.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py"})
	if err != nil || len(res.OK()) != 1 {
		t.Fatal(err, res)
	}
	sb := res.OK()[0]
	if _, err := f.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		if n.Name != sb.Node {
			continue
		}
		if err := n.Daemon.Engine.Drain.Start(drain.ModePause, false); err != nil {
			t.Fatal(err)
		}
	}
	moved, err := f.Resume(t.Context(), sb.ID)
	if err != nil || moved.ID != sb.ID || moved.Node == sb.Node || moved.Status != api.SandboxRunning {
		t.Fatalf("of %s: %+v, %v", sb.Node, moved, err)
	}
	if gone, err := f.Gone(t.Context(), sb.ID); gone || err != nil {
		t.Errorf("gone: %v, %v", gone, err)
	}
	if changed, err := f.Refresh(t.Context()); err != nil || len(f.Of(owner)) != 1 {
		t.Errorf("%v, %v, %v", changed, err, f.Of(owner))
	}
	if _, err := f.Until(t.Context(), sb.ID, time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if err := f.End(t.Context(), sb.ID); err != nil || c.Sandboxes()[0]+c.Sandboxes()[1] != 0 {
		t.Errorf("%v, the nodes have %v", err, c.Sandboxes())
	}
}

// A node may be missing in a list and answer the question about its sandbox a moment later. The state in that answer is
// a change.
func TestAStateInAnAnswerIsAChange(t *testing.T) {
	_, f := start(t)
	res, err := f.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py"})
	if err != nil {
		t.Fatal(err)
	}
	id := res.Sandboxes[0].ID
	if _, err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := (client.Life{Client: f.Client()}).Pause(t.Context(), id, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	if gone, err := f.Gone(t.Context(), id); err != nil || gone {
		t.Fatalf("gone %v, %v", gone, err)
	}
	if changed, err := f.Refresh(t.Context()); err != nil || len(changed) != 1 || changed[0].ID != id {
		t.Errorf("changed %v, %v", changed, err)
	}
	if changed, err := f.Refresh(t.Context()); err != nil || len(changed) != 0 {
		t.Errorf("changed again %v, %v", changed, err)
	}
}

func TestChangesWakeTheirOwners(t *testing.T) {
	_, f := start(t)
	res, err := f.Fork(t.Context(), owner, api.CreateSandboxesRequest{SnapshotTag: "py"})
	if err != nil {
		t.Fatal(err)
	}
	id := res.Sandboxes[0].ID
	if changed, err := f.Refresh(t.Context()); err != nil || len(changed) != 0 {
		t.Errorf("changed %v, %v", changed, err)
	}
	if _, err := (client.Life{Client: f.Client()}).Pause(t.Context(), id, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	if changed, err := f.Refresh(t.Context()); err != nil || len(changed) != 1 ||
		changed[0] != (fleet.Change{Owner: owner, ID: id}) {
		t.Errorf("after a pause changed %v, %v", changed, err)
	}
	if err := f.Client().Kill(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if changed, err := f.Refresh(t.Context()); err != nil || len(changed) != 1 || len(f.All()) != 0 {
		t.Errorf("after the end changed %v, %v, known %v", changed, err, f.All())
	}
}

func TestTimesOfEndsAreWithinTheAPIsLimits(t *testing.T) {
	for at, want := range map[time.Time]float64{{}: 0, time.Now().Add(-time.Hour): 1, time.Now().AddDate(100, 0,
		0): 315360000} {
		if got := fleet.Seconds(at); got != want {
			t.Errorf("until %s are %v seconds, want %v", at, got, want)
		}
	}
}

func keyOf(id string) sandbox.NodeKey { return sandbox.NodeKeyIn(id) }
