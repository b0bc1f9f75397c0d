package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// forker makes one child of a snapshot. Its guest may fork it. At the end of the test forker kills
// the child and its descendants, and checks for leftover snapshots.
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

// tree returns the sandboxes made from one by forks in guests, by depth.
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

// python runs a separate Python program in a sandbox. The program prints JSON.
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

// forkAndWait forks 3 children. One forks again, and another returns a result of the maximum size.
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

// The shell commands: permission, depth limit, and the ends of children.
func TestGuestForkCommands(t *testing.T) {
	d := shared(t)
	small := d.small()
	d.unchanged()
	d.sub("denied by default", func(t *testing.T) {
		id := d.forkOf(small, 1)[0].ID
		d.refusedIn(id, "forkd-fork 1", 3, "guest_fork")
		d.refusedIn(id, "forkd-exit 0 </dev/null", 1, "no waiting parent")
		d.refusedIn(id, "forkd-wait", 10, "no child")
		d.refusedIn(id, "forkd-fork 0", 2, "1 to 1000")
	})
	root := d.forker(small)
	d.refusedIn(root, "forkd-fork 64", 3, "the maximum is 64")
	out := strings.Fields(d.sh(root, "forkd-fork 2"))
	if len(out) != 3 || out[0] != "0" {
		t.Fatalf("forkd-fork printed %q", out)
	}
	d.drawn(small, root, out[1])
	// A child's commands end with its VM, so there is no answer.
	_, _ = d.c.Exec(t.Context(), out[1], api.ExecRequest{Args: []string{"sh", "-c", "echo all done | forkd-exit 5"}, User: "root"})
	d.childEnded(root, "1\t"+out[1]+"\texited\t5\t9\t")
	dying, err := d.c.Sandbox(t.Context(), out[2])
	if err != nil || dying.ForkedBy != root || dying.ForkDepth != 1 || !dying.GuestFork || dying.PID == nil {
		t.Fatalf("the child is %+v, %v", dying, err)
	}
	if err := syscall.Kill(*dying.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.childEnded(root, "2\t"+out[2]+"\tdied\t-\t0\t")
	d.refusedIn(root, "forkd-wait", 10, "no child")
}

// refusedIn runs a command and expects the given exit code and words.
func (d *daemon) refusedIn(id, script string, code int, words string) {
	d.t.Helper()
	r, err := d.c.Exec(d.t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", script}, User: "root", TimeoutSecs: patience.Seconds()})
	if err != nil || r.ExitCode != code || !strings.Contains(r.Stderr, words) {
		d.t.Errorf("%s: %q: exit code %d, %q, %v; want %d: %s", id, script, r.ExitCode, r.Stderr, err, code, words)
	}
}

// childEnded makes a sandbox wait for one child, and compares the line printed by forkd-wait.
func (d *daemon) childEnded(id, line string) {
	d.t.Helper()
	if got := d.sh(id, "forkd-wait --any --timeout 60s || [ $? = 11 ]"); !strings.HasPrefix(got+"\t", line) {
		d.t.Errorf("forkd-wait printed %q, want %q", got, line)
	}
}

// drawn checks for the intermediate snapshot in the tree.
func (d *daemon) drawn(tag, root, child string) {
	code, out, errs := d.cli("snapshot", "tree", tag)
	for _, word := range []string{"└── gf-" + root + "-", "a guest's fork", "── " + child} {
		if code != 0 || !strings.Contains(out, word) {
			d.t.Errorf("the tree has no %q (exit code %d): %s%s", word, code, out, errs)
		}
	}
}

// twoForks runs in the original and in both children. Each prints the answers to its two callers.
const twoForks = `
cd /tmp
(forkd-fork 1 > a 2> ae; echo $? > as) &
(forkd-fork 1 > b 2> be; echo $? > bs) &
wait
told=$(echo $(head -n 1 a) $(cat as) / $(head -n 1 b) $(cat bs))
if cat a b | grep -qx 1; then echo "$told" | forkd-exit 0; fi
mkdir -p ends; forkd-wait --results ends --timeout 60s > /dev/null
echo "$told"; cat ends/*
`

// Two programs of a guest fork at the same time. Each gets its answer in the original and in its
// own child. In the other child it gets an error about the interruption, or its earlier answer if
// the second fork came later.
func TestTwoForksInAGuestAtOnce(t *testing.T) {
	d := shared(t)
	small := d.small()
	d.unchanged()
	lines := strings.Split(d.sh(d.forker(small), twoForks), "\n")
	if len(lines) != 3 || lines[0] != "0 0 / 0 0" {
		t.Fatalf("got %q", lines)
	}
	left := []string{"1 0 / 5", "1 0 / 0 0"}  // in a's child
	right := []string{"5 / 1 0", "0 0 / 1 0"} // in b's
	if slices.Contains(right, lines[1]) {
		lines[1], lines[2] = lines[2], lines[1]
	}
	if !slices.Contains(left, lines[1]) || !slices.Contains(right, lines[2]) || lines[1] == left[1] && lines[2] == right[1] {
		t.Errorf("got %q", lines)
	}
}
