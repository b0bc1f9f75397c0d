package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// branch makes a snapshot of a sandbox. The snapshot and its children are removed at the end of the
// test.
func (d *daemon) branch(id string, req api.BranchRequest) api.BranchResult {
	d.t.Helper()
	t := d.t
	res, err := d.c.Branch(t.Context(), id, req)
	if err != nil {
		t.Fatalf("branch %s: %v", id, err)
	}
	t.Logf("%s: %s: pause %.3f ms, %s, %d rounds, %d bytes, %d of them in the pause, %.1f ms in all",
		res.Tag, req.Mode, *res.PauseMS, res.Mechanism, res.Rounds, res.BytesWritten, res.PausedBytes, res.TotalMS)
	t.Cleanup(func() {
		for _, sb := range res.Children {
			if err := d.c.Kill(context.Background(), sb.ID); sb.ID != "" && err != nil && !client.IsNotFound(err) {
				t.Error(err)
			}
		}
		// Without force, because the snapshots built on it must already be deleted.
		if err := d.c.DeleteSnapshot(context.Background(), res.Tag, client.DeleteOptions{}); err != nil && !client.IsNotFound(err) {
			t.Error(err)
		}
	})
	for _, sb := range res.Children {
		if sb.Error != "" {
			t.Fatalf("child %d of %s: %s", sb.Index, res.Tag, sb.Error)
		}
	}
	if len(res.Children) != req.N {
		t.Fatalf("%d children, want %d", len(res.Children), req.N)
	}
	return res
}

// forkOf makes n children of a snapshot, which are killed at the end of the test.
func (d *daemon) forkOf(tag string, n int) []api.SandboxInfo {
	d.t.Helper()
	res := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: tag, N: &n})
	for _, sb := range res.Failed() {
		d.t.Fatalf("child %d of %s: %s", sb.Index, tag, sb.Error)
	}
	return res.Sandboxes
}

// startCounting starts a counting thread in the interpreter.
const startCounting = `
import threading
ticks = [0]
def counting(ticks=ticks, sleep=time.sleep):
    while True:
        ticks[0] += 1
        sleep(0.01)
threading.Thread(target=counting, daemon=True).start()
`

func (d *daemon) ticks(id string) int {
	d.t.Helper()
	n, err := strconv.Atoi(d.eval(id, "ticks[0]"))
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// counts checks that a sandbox's thread runs.
func (d *daemon) counts(id string) {
	d.t.Helper()
	before := d.ticks(id)
	eventually(d.t, "tick in "+id, func() bool { return d.ticks(id) > before })
}

// remember stores a text in memory and in a file, without writing the file back.
func (d *daemon) remember(id, what string) {
	d.t.Helper()
	d.eval(id, fmt.Sprintf("memory = %q; open('/home/user/memory', 'w').write(memory)", what))
}

// remembers checks the text stored by remember.
func (d *daemon) remembers(id, what string) {
	d.t.Helper()
	want := []string{what, what}
	if got := d.list(id, "memory", "open('/home/user/memory').read()"); !slices.Equal(got, want) {
		d.t.Errorf("%s remembers %q, want %q", id, got, want)
	}
}

// In each mode the children continue from the source's state, and so does the source.
func TestBranch(t *testing.T) {
	d := shared(t)
	d.unchanged()
	source := d.fork(1)[0].ID
	d.eval(source, startCounting)
	for _, mode := range modes(t) {
		d.sub(string(mode), func(t *testing.T) { d.branchIn(mode, source) })
	}
}

// modes returns all modes in a soak, and otherwise live and one of the others, which the seed picks.
func modes(t *testing.T) []api.BranchMode {
	others := []api.BranchMode{api.BranchDiff, api.BranchFull}
	if !harness.Soaking() {
		i := kvmtest.Random(kvmtest.Seed(t), 0).IntN(2)
		others = others[i : i+1]
	}
	return append([]api.BranchMode{api.BranchLive}, others...)
}

func (d *daemon) branchIn(mode api.BranchMode, source string) {
	t, tag, just := d.t, "b-"+string(mode), "just before "+string(mode)
	d.remember(source, just)
	before := d.ticks(source)
	res := d.branch(source, api.BranchRequest{Tag: tag, Mode: mode, N: 2})
	a, b := res.Children[0].ID, res.Children[1].ID
	d.sub("what the answer says", func(t *testing.T) { d.describesItself(res, mode, source) })
	for _, id := range []string{a, b} {
		d.remembers(id, just)
		if got := d.ticks(id); got < before {
			t.Errorf("%s has counted to %d, its source to %d before", id, got, before)
		}
		d.counts(id)
	}
	d.sub("the children are themselves", func(t *testing.T) { d.childrenOfABranch(tag, source, res.Children) })
	d.sub("all are apart", func(t *testing.T) {
		d.remember(source, "of the source")
		d.remember(a, "of a")
		d.remember(b, "of b")
		d.remembers(source, "of the source")
		d.remembers(a, "of a")
		d.remembers(b, "of b")
		d.remembers(d.forkOf(tag, 1)[0].ID, just)
	})
	d.counts(source)
	d.alive(append(res.Children, api.SandboxInfo{ID: source})...)
}

func (d *daemon) describesItself(res api.BranchResult, mode api.BranchMode, source string) {
	t := d.t
	if res.Status != api.SnapshotReady || !res.Bootable || res.BranchedFrom == nil || *res.BranchedFrom != source || res.MemoryMiB != 256 {
		t.Errorf("the answer is %+v", res)
	}
	if *res.PauseMS <= 0 || res.TotalMS < *res.PauseMS || res.BytesWritten <= 0 || res.PausedBytes > res.BytesWritten || res.Mechanism == "" {
		t.Errorf("what it took cannot be: %+v", res)
	}
	info, err := d.c.Snapshot(t.Context(), res.Tag)
	if err != nil {
		t.Fatal(err)
	}
	if wantsParent := mode != api.BranchFull; wantsParent != (info.ParentTag != nil && *info.ParentTag == parentTag) || wantsParent != (info.ChainDepth > 0) {
		t.Errorf("parent %v, ancestors %v", info.ParentTag, info.Ancestors)
	}
	for _, sb := range res.Children {
		if !slices.Contains(info.Sandboxes, sb.ID) {
			t.Errorf("%s is not among its sandboxes %v", sb.ID, info.Sandboxes)
		}
	}
	if mode == api.BranchDiff && res.PausedBytes != res.BytesWritten {
		t.Errorf("a diff copied %d of %d bytes in the pause", res.PausedBytes, res.BytesWritten)
	}
}

// childrenOfABranch compares the children with each other and with their source: they must differ.
func (d *daemon) childrenOfABranch(tag, source string, children []api.SandboxInfo) {
	seen := map[string]string{}
	var codes []string
	for _, o := range own {
		codes = append(codes, o.code)
	}
	for _, id := range []string{source, children[0].ID, children[1].ID} {
		for i, v := range d.list(id, codes...) {
			if other := seen[own[i].what+v]; other != "" || v == "" {
				d.t.Errorf("%s: %s and %s both have %q", own[i].what, id, other, v)
			}
			seen[own[i].what+v] = id
		}
	}
	for i, sb := range children {
		want := []string{sb.ID, strconv.Itoa(i + 1), tag}
		if got := d.list(sb.ID, "socket.gethostname()", "os.environ['FORKD_INDEX']", "os.environ['FORKD_PARENT']"); !slices.Equal(got, want) {
			d.t.Errorf("%s sees %q, want %q", sb.ID, got, want)
		}
	}
	if got := d.list(source, "socket.gethostname()", "os.environ['FORKD_PARENT']"); !slices.Equal(got, []string{source, parentTag}) {
		d.t.Errorf("the source has become %q", got)
	}
}

// A fork directly after a branch with wait=false.
func TestABranchThatIsNotWaitedFor(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	source := d.fork(1)[0].ID
	for _, mode := range modes(t) {
		d.sub(string(mode), func(t *testing.T) {
			d.remember(source, "before "+string(mode))
			res := d.branch(source, api.BranchRequest{Tag: "later", Mode: mode, Wait: new(bool)})
			if res.Status != api.SnapshotWriting && res.Status != api.SnapshotReady {
				t.Errorf("its status is %s", res.Status)
			}
			d.remember(source, "afterwards")
			for _, sb := range d.forkOf("later", 2) {
				d.remembers(sb.ID, "before "+string(mode))
			}
			info, err := d.c.Snapshot(t.Context(), "later")
			if err != nil || info.Status != api.SnapshotReady {
				t.Errorf("after a fork it is %s: %v", info.Status, err)
			}
			d.remembers(source, "afterwards")
		})
	}
}

// Three levels of branches: each level sees the changes before it, and no later ones.
func TestABranchOfABranchOfABranch(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	at := d.fork(1)[0].ID
	d.eval(at, "path = []")
	var sources []string
	for depth := 1; depth <= 3; depth++ {
		d.eval(at, fmt.Sprintf("path.append(%d)", depth))
		d.sh(at, fmt.Sprintf("echo %d >> /home/user/path", depth))
		sources = append(sources, at)
		at = d.branch(at, api.BranchRequest{Tag: fmt.Sprintf("deep%d", depth), N: 1}).Children[0].ID
	}
	d.eval(at, "path.append('leaf')")
	for i, id := range append(sources, at) {
		want := []string{"[1]", "[1, 2]", "[1, 2, 3]", "[1, 2, 3, 'leaf']"}[i]
		if got := d.eval(id, "path"); got != want {
			t.Errorf("%d branches deep the path is %s, want %s", i, got, want)
		}
		want = []string{"1", "1 2", "1 2 3", "1 2 3"}[i]
		if got := strings.Join(strings.Fields(d.sh(id, "cat /home/user/path")), " "); got != want {
			t.Errorf("%d branches deep the file has %q, want %q", i, got, want)
		}
	}
	info, err := d.c.Snapshot(t.Context(), "deep3")
	if want := []string{parentTag, "deep1", "deep2"}; err != nil || !slices.Equal(info.Ancestors, want) || info.ChainDepth != 3 {
		t.Errorf("its ancestors are %v, want %v: %v", info.Ancestors, want, err)
	}
	if r, err := d.c.VerifySnapshot(t.Context(), "deep3", nil); err != nil && client.CodeOf(err) != api.CodeConflict || err == nil && !r.OK {
		t.Errorf("verify says %+v, %v", r, err)
	}
	wantError(t, d.c.DeleteSnapshot(t.Context(), "deep1", client.DeleteOptions{}), api.CodeConflict, "deep1", "deep2", "deep3")
	code, out, errs := d.cli("snapshot", "tree", parentTag)
	for _, line := range []string{"└── deep1 ", "    └── deep2 ", "        └── deep3 ", "            └── " + at} {
		if code != 0 || !strings.Contains(out, line) {
			t.Errorf("the tree has no %q (exit code %d): %s%s", line, code, out, errs)
		}
	}
	// The source of the first branch can be branched again.
	d.remember(sources[0], "again")
	again := d.branch(sources[0], api.BranchRequest{Tag: "again", N: 1}).Children[0].ID
	d.remembers(again, "again")
	if got := d.eval(again, "path"); got != "[1]" {
		t.Errorf("the path of a second branch is %s", got)
	}
	d.alive(api.SandboxInfo{ID: at}, api.SandboxInfo{ID: again}, api.SandboxInfo{ID: sources[0]})
}

func TestBranchesThatCannotBe(t *testing.T) {
	d := shared(t)
	d.unchanged()
	sbs := d.fork(2)
	source, dead := sbs[0].ID, sbs[1]
	if err := syscall.Kill(*dead.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "failure of "+dead.ID, func() bool {
		info, err := d.c.Sandbox(t.Context(), dead.ID)
		return err == nil && info.Status == api.SandboxFailed
	})
	d.unchanged()
	for _, c := range []struct {
		name, id string
		req      api.BranchRequest
		code     api.Code
		words    []string
	}{
		{"unknown sandbox", "sb-0-0000", api.BranchRequest{Tag: "no"}, api.CodeNotFound, []string{"sb-0-0000"}},
		{"dead sandbox", dead.ID, api.BranchRequest{Tag: "no"}, api.CodeGuestGone, []string{dead.ID, "signal: killed"}},
		{"tag exists", source, api.BranchRequest{Tag: parentTag}, api.CodeConflict, []string{parentTag, "exists"}},
		{"bad tag", source, api.BranchRequest{Tag: "../x"}, api.CodeInvalid, []string{"tag", "1 to 64 letters, digits, - or _"}},
		{"unknown mode", source, api.BranchRequest{Tag: "no", Mode: "quick"}, api.CodeInvalid, []string{"mode"}},
		{"children without waiting", source, api.BranchRequest{Tag: "no", N: 1, Wait: new(bool)}, api.CodeInvalid, []string{"exclude each other"}},
		{"too many children", source, api.BranchRequest{Tag: "no", N: api.MaxFork + 1}, api.CodeInvalid, []string{"n is 1001: expected number <= 1000"}},
		{"fewer than no children", source, api.BranchRequest{Tag: "no", N: -1}, api.CodeInvalid, []string{"n is -1: expected number >= 0"}},
		{"a pause that cannot be kept", source, api.BranchRequest{Tag: "no", Mode: api.BranchDiff, MaxPauseMS: 0.001}, api.CodeConflict, []string{"pause"}},
		{"a pause that live cannot keep", source, api.BranchRequest{Tag: "no", MaxPauseMS: 0.001}, api.CodeConflict, []string{"pause"}},
	} {
		d.sub(c.name, func(t *testing.T) {
			d.unchanged()
			_, err := d.c.Branch(t.Context(), c.id, c.req)
			wantError(t, err, c.code, c.words...)
		})
	}
	for code, args := range map[int][]string{3: {"sb-0-0000"}, 4: {source, "--tag", parentTag}, 7: {dead.ID}, 2: {source, "--mode", "quick"}} {
		if got, _, errs := d.cli(append([]string{"branch"}, args...)...); got != code {
			t.Errorf("forkd branch %v: exit code %d, want %d: %s", args, got, code, errs)
		}
	}
	// The errors have neither harmed the source nor kept the tag.
	d.remember(source, "unhurt")
	d.remembers(d.branch(source, api.BranchRequest{Tag: "no", N: 1}).Children[0].ID, "unhurt")
	d.alive(sbs[0])
}

// A branch does not disturb a program whose output is being read.
func TestAProgramsOutputOutlivesABranch(t *testing.T) {
	d := shared(t)
	d.unchanged()
	source := d.fork(1)[0].ID
	started, ended := make(chan struct{}), make(chan error, 1)
	out := &watcher{word: "first", seen: func() { close(started) }}
	go func() {
		const script = "echo first; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo last"
		st, err := d.c.ExecStream(t.Context(), source, client.ExecOptions{Args: []string{"sh", "-c", script}, User: "root", Stdout: out})
		if err == nil && st.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", st.ExitCode)
		}
		ended <- err
	}()
	select {
	case <-started:
	case err := <-ended:
		t.Fatalf("it ended before the branch: %v", err)
	}
	child := d.branch(source, api.BranchRequest{Tag: "streaming", N: 1}).Children[0].ID
	if got := d.sh(child, "ls /tmp/go 2>/dev/null || echo none"); got != "none" {
		t.Errorf("%s sees %q", child, got)
	}
	d.sh(source, "touch /tmp/go")
	if err := <-ended; err != nil || out.buf.String() != "first\nlast\n" {
		t.Errorf("the output is %q, %v", out.buf.String(), err)
	}
}
