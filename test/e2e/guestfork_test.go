package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// forker makes one child of a snapshot whose guest may fork it. It and all that
// it makes end with the test, and then no snapshot of theirs may be left.
func (d *daemon) forker(tag string) string {
	d.t.Helper()
	t, n := d.t, 1
	res, err := d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag, N: &n, GuestFork: true})
	if err != nil {
		t.Fatal(err)
	}
	if sb := res.Sandboxes[0]; sb.Error != "" || !sb.GuestFork {
		t.Fatalf("forked %+v", sb)
	}
	root := res.Sandboxes[0].ID
	t.Cleanup(func() {
		d.killTree(t, root)
		eventually(t, "end of the snapshots in between", func() bool {
			list, err := d.c.ListSnapshots(context.Background())
			return err == nil && !slices.ContainsFunc(list, func(s api.SnapshotInfo) bool { return s.Transient })
		})
	})
	return root
}

// tree are the sandboxes that came of one by forks in guests, by depth.
func (d *daemon) tree(t *testing.T, root string) []api.SandboxInfo {
	t.Helper()
	all, err := d.c.ListSandboxes(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]bool{root: true}
	var out []api.SandboxInfo
	for grown := true; grown; {
		grown = false
		for _, sb := range all {
			if (in[sb.ForkedBy] || sb.ID == root) && !slices.ContainsFunc(out, func(o api.SandboxInfo) bool { return o.ID == sb.ID }) {
				in[sb.ID], grown = true, true
				out = append(out, sb)
			}
		}
	}
	return out
}

func (d *daemon) killTree(t *testing.T, root string) {
	for _, sb := range d.tree(t, root) {
		if err := d.c.Kill(context.Background(), sb.ID); err != nil && !client.IsNotFound(err) {
			t.Error(err)
		}
	}
}

// python runs a program of its own in a sandbox, which prints JSON.
func (d *daemon) python(id, program string, into any) {
	d.t.Helper()
	r, err := d.c.Exec(d.t.Context(), id, api.ExecRequest{Args: []string{"python3", "-c", program}, TimeoutSecs: 2 * patience.Seconds()})
	switch {
	case err != nil:
		d.t.Fatal(err)
	case r.ExitCode != 0:
		d.t.Fatalf("%s: exit code %d: %s%s", id, r.ExitCode, r.Stdout, r.Stderr)
	}
	if err := json.Unmarshal([]byte(r.Stdout), into); err != nil {
		d.t.Fatalf("%s printed %q: %v", id, r.Stdout, err)
	}
}

// forkAndWait forks 3, one of which forks again, and another of which leaves all
// that it may.
const forkAndWait = `
import forkd, json, os, random, socket
random.seed(1)
before = os.getpid()
i = forkd.fork(3)
if i:
    state = dict(index=i, env=os.environ["FORKD_INDEX"], host=socket.gethostname(), parent=os.environ["FORKD_PARENT"],
                 random=random.random(), urandom=os.urandom(8).hex(), same=os.getpid() == before)
    if i == 1:
        forkd.exit(1, b"x" * (1 << 20))
    if i == 2:
        j = forkd.fork(1)
        if j:
            forkd.exit(40 + j, "of the fork within the fork")
        [end] = forkd.wait()
        state["within"] = [end.code, end.result.decode()]
    if i == 3:
        try:
            forkd.wait()
            forkd._call({"op": "wait"})
        except forkd.ForkError as e:
            state["wait"] = e.code
    forkd.exit(i, json.dumps(state))
children = forkd.children
ends = forkd.wait(100)
print(json.dumps(dict(
    random=random.random(), ids=[c.id for c in children], errors=[c.error for c in children], again=forkd.wait(),
    ends=[dict(index=e.index, id=e.id, status=e.status, code=e.code, size=len(e.result)) for e in ends],
    states=[json.loads(e.result) for e in ends if len(e.result) < 1 << 20])))
`

func TestAGuestForksItself(t *testing.T) {
	d := shared(t)
	d.unchanged()
	root := d.forker(parentTag)
	var got struct {
		Random      float64
		IDs, Errors []string
		Again       []any
		Ends        []struct {
			Index, Code, Size int
			ID, Status        string
		}
		States []struct {
			Index                            int
			Env, Host, Parent, Urandom, Wait string
			Random                           float64
			Same                             bool
			Within                           []any
		}
	}
	d.python(root, forkAndWait, &got)
	if len(got.Ends) != 3 || len(got.States) != 2 || len(got.Again) != 0 || strings.Join(got.Errors, "") != "" {
		t.Fatalf("got %+v", got)
	}
	for i, e := range got.Ends {
		if e.Index != i+1 || e.ID != got.IDs[i] || e.Status != "exited" || e.Code != i+1 || (e.Size == 1<<20) != (i == 0) {
			t.Errorf("child %d: %+v", i+1, e)
		}
	}
	seen := map[string]bool{fmt.Sprint(got.Random): true}
	for i, s := range got.States {
		if s.Index != i+2 || s.Env != fmt.Sprint(i+2) || s.Host != got.IDs[i+1] || !s.Same || !strings.HasPrefix(s.Parent, "gf-"+root) {
			t.Errorf("child %d is %+v", i+2, s)
		}
		if seen[s.Urandom] || seen[fmt.Sprint(s.Random)] {
			t.Errorf("child %d drew what another did: %+v", i+2, s)
		}
		seen[s.Urandom], seen[fmt.Sprint(s.Random)] = true, true
	}
	if w := got.States[0].Within; len(w) != 2 || w[0] != 41.0 || w[1] != "of the fork within the fork" {
		t.Errorf("the fork within the fork: %v", w)
	}
	if got.States[1].Wait != "no_children" {
		t.Errorf("a child that waits for its siblings: %q", got.States[1].Wait)
	}
	if left := d.tree(t, root); len(left) != 1 {
		t.Errorf("%d sandboxes are left of the tree", len(left))
	}
	d.alive(api.SandboxInfo{ID: root})
}
