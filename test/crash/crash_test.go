package crash

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// operation is an operation to interrupt.
type operation struct {
	name string
	// If source is true, the operation acts on a sandbox, which must live as long as its VMM.
	source bool
	do     func(ctx context.Context, c *client.Client, source string) error
	// If back is true, the operation gives the sandbox another VM, with the parent's state.
	back bool
	// If pauses is true, the sandbox may be paused afterwards.
	pauses bool
	// noVMM lists the operation's steps without a VMM to kill.
	noVMM []failpoint.Step
}

// operations begins with operations of many steps. Each later operation adds a few. A step is
// tested in the first operation with it.
var operations = []operation{
	{name: "branch live", source: true, do: branchWith(api.BranchLive)},
	{name: "branch full", source: true, do: branchWith(api.BranchFull)},
	{name: "branch diff", source: true, do: branchWith(api.BranchDiff)},
	{name: "fork", do: func(ctx context.Context, c *client.Client, _ string) error {
		n := 1
		_, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n})
		return err
	}},
	{name: "rollback", source: true, back: true, noVMM: []failpoint.Step{failpoint.RollbackBegun}, do: func(ctx context.Context, c *client.Client, source string) error {
		_, err := c.Rollback(ctx, source, parentTag)
		return err
	}},
	{name: "pause and resume", source: true, pauses: true, noVMM: []failpoint.Step{failpoint.PauseRecorded},
		do: pauseAndResume(api.PauseRequest{})},
	{name: "pause without memory and resume", source: true, pauses: true,
		do: pauseAndResume(api.PauseRequest{FilesystemOnly: true})},
	{name: "create", noVMM: []failpoint.Step{failpoint.CreateReserved, failpoint.CreateSaved, failpoint.CreateDone}, do: func(ctx context.Context, c *client.Client, _ string) error {
		_, err := c.CreateSnapshot(ctx, api.CreateSnapshotRequest{Tag: newTag, Image: imageName}, nil)
		return err
	}},
}

func pauseAndResume(req api.PauseRequest) func(context.Context, *client.Client, string) error {
	return func(ctx context.Context, c *client.Client, source string) error {
		if _, err := (client.Life{Client: c}).Pause(ctx, source, req); err != nil {
			return err
		}
		_, err := client.Life{Client: c}.Resume(ctx, source)
		return err
	}
}

func branchWith(mode api.BranchMode) func(context.Context, *client.Client, string) error {
	return func(ctx context.Context, c *client.Client, source string) error {
		_, err := c.Branch(ctx, source, api.BranchRequest{Tag: newTag, Mode: mode})
		return err
	}
}

// TestKills kills the daemon or the VMM at steps of the operations. The seed picks the steps, and one
// of the two; a soak kills both at every step.
func TestKills(t *testing.T) {
	random := kvmtest.Random(kvmtest.Seed(t), 0)
	w := newWorld(t)
	var seen []failpoint.Step
	for _, op := range operations {
		var steps []failpoint.Step
		w.sub(op.name+" passes", func() { steps = w.watch(op) })
		for _, s := range steps {
			if slices.Contains(seen, s) || collects(s) {
				continue
			}
			seen = append(seen, s)
			if !chosen(random) {
				continue
			}
			name := op.name + " at " + string(s)
			both, daemon := harness.Soaking(), random.IntN(2) == 0
			noVMM := slices.Contains(op.noVMM, s)
			if both || daemon || noVMM {
				w.sub(name+" the daemon", func() { w.killDaemon(op, s) })
			}
			if !noVMM && (both || !daemon) {
				w.sub(name+" the VMM", func() { w.killVMM(op, s) })
			}
		}
	}
	w.verified(parentTag)
	for _, s := range failpoint.Steps() {
		elsewhere := strings.HasPrefix(string(s), failpoint.SpawnPrefix) || strings.HasPrefix(string(s), "group.") ||
			strings.HasPrefix(string(s), "move.") // see internal/engine/move_test.go
		if !elsewhere && !slices.Contains(seen, s) {
			t.Errorf("no operation passes %s", s)
		}
	}
}

// chosen reports whether a run kills at a step: at each in a soak, otherwise at an eighth of them. Runs
// have different seeds, so they cover all steps in time.
func chosen(random *rand.Rand) bool { return harness.Soaking() || random.IntN(8) == 0 }

// collects reports whether a step belongs to the collection of layers. The time of such a step is
// unrelated to the operation, so the test could not reach it again. The layer store has a test with
// a kill at each.
func collects(s failpoint.Step) bool { return strings.HasPrefix(string(s), "layer.gc.") }

// watch runs an operation without a kill, and returns its steps.
func (w *world) watch(op operation) []failpoint.Step {
	source := w.source(op)
	w.passed()
	if err := op.do(w.t.Context(), w.d.Client, source.ID); err != nil {
		w.t.Fatal(err)
	}
	steps := w.passed()
	w.t.Logf("%d steps: %v", len(steps), steps)
	w.clean()
	w.nothingLeft()
	return steps
}

// source returns a sandbox for the operation, if it needs one. The sandbox is new each time,
// because a branch changes its source's files.
func (w *world) source(op operation) api.SandboxInfo {
	w.t.Helper()
	if !op.source {
		return api.SandboxInfo{}
	}
	return w.fork(parentTag)
}

// begin prepares the state at the beginning of a case.
func (w *world) begin() {
	if !w.d.Running() {
		w.start()
	}
	w.clean()
}

// stand begins an operation and returns when it has stopped at the step. It sends the operation's
// result on ended.
func (w *world) stand(op operation, s failpoint.Step, source api.SandboxInfo) (mark string, ended <-chan error) {
	w.t.Helper()
	if op.source {
		mark = w.mark(source.ID)
	}
	w.arm(s)
	t := w.t
	t.Cleanup(func() {
		w.disarm(s)
		if t.Failed() { // the next case must begin in a clean state
			w.begin()
		}
	})
	end := make(chan error, 1)
	go func() { end <- op.do(context.Background(), w.d.Client, source.ID) }()
	w.reached(s)
	return mark, end
}

func (w *world) killDaemon(op operation, s failpoint.Step) {
	source := w.source(op)
	mark, ended := w.stand(op, s, source)
	w.d.End(syscall.SIGKILL)
	if err := <-ended; err == nil && !inBackground(s) {
		w.t.Errorf("the caller was told of success before the step")
	}
	w.disarm(s)
	w.start()
	switch {
	case op.pauses:
		w.runsOrIsPaused(source.ID, mark)
	case op.back:
		w.isOneOfTwo(source, mark)
	case op.source:
		w.lives(source, mark)
	}
	if made := w.listedIsWhole(mark); op.source && !made { // the name is free
		if err := branchWith(api.BranchDiff)(w.t.Context(), w.d.Client, source.ID); err != nil {
			w.t.Errorf("branch again: %v", err)
		}
	}
	w.clean()
	w.nothingLeft()
}

// inBackground reports whether the operation may be answered before a step: digests are computed
// later.
func inBackground(s failpoint.Step) bool { return strings.Contains(string(s), ".hash.") }

func (w *world) killVMM(op operation, s failpoint.Step) {
	source := w.source(op)
	mark, ended := w.stand(op, s, source)
	var old *int
	if op.back {
		old = source.PID // the new process is killed
	}
	beside := inBackground(s)
	var err error
	if beside { // no request waits for the step
		err = <-ended
	}
	killed := w.killVMMs(old)
	w.disarm(s)
	if !beside {
		err = <-ended
	}
	w.t.Logf("%d VMMs killed; the caller was told: %v", killed, err)
	switch {
	case beside && op.source: // the killed VM was the sandbox's VM after the operation
		w.failed(source.ID)
	case op.pauses && (s == failpoint.PauseWritten || err == nil && (killed == 0 || wantsNoVM(s))):
		w.runsOrIsPaused(source.ID, mark)
	case op.pauses:
		w.pausedOrFailed(source.ID, mark)
	case op.back && s != failpoint.RollbackExchanged: // the killed VM was not yet the sandbox's
		if err == nil {
			w.t.Error("the caller was told of success")
		}
		w.lives(source, mark)
	case op.source:
		w.failed(source.ID)
	case err == nil && killed > 0 && op.name == "fork": // listed first, and then found dead
		w.failed("")
	}
	if !op.pauses { // a pause may be deleting its snapshot now
		if made := w.listedIsWhole(mark); op.source && !op.back && made != (err == nil) {
			w.t.Errorf("the snapshot is there: %v", made)
		}
	}
	w.clean()
	w.nothingLeft()
}

// wantsNoVM reports whether a pause may no longer need its VM at a step, and so continues without
// it. A pause without memory needs only the files of the disk.
func wantsNoVM(s failpoint.Step) bool {
	return strings.HasPrefix(string(s), "pause.") || strings.HasPrefix(string(s), "layer.")
}

// lives checks that a source has survived the end of the daemon.
func (w *world) lives(source api.SandboxInfo, mark string) {
	w.t.Helper()
	info, err := w.d.Client.Sandbox(w.t.Context(), source.ID)
	if err != nil || info.Status != api.SandboxRunning || info.PID == nil || *info.PID != *source.PID {
		w.t.Fatalf("the source is %+v, %v", info, err)
	}
	w.marked(source.ID, mark)
}

// runsOrIsPaused checks that a sandbox runs, or is paused and can be resumed, with its earlier
// state.
func (w *world) runsOrIsPaused(id, mark string) {
	w.t.Helper()
	info, err := w.d.Client.Sandbox(w.t.Context(), id)
	if err != nil || info.Status != api.SandboxRunning && info.Status != api.SandboxPaused {
		w.t.Fatalf("the sandbox is %+v, %v", info, err)
	}
	if _, err := (client.Life{Client: w.d.Client}).Resume(w.t.Context(), id); err != nil {
		w.t.Fatal(err)
	}
	w.marked(id, mark)
}

// pausedOrFailed checks a sandbox after a kill of its VMM or its future VMM.
func (w *world) pausedOrFailed(id, mark string) {
	w.t.Helper()
	status := api.SandboxRunning
	w.eventually("paused or failed sandbox", func() bool {
		info, err := w.d.Client.Sandbox(w.t.Context(), id)
		if err != nil {
			w.t.Fatal(err)
		}
		status = info.Status
		return status == api.SandboxPaused || status == api.SandboxFailed
	})
	if status == api.SandboxPaused {
		w.runsOrIsPaused(id, mark)
	}
}

// isOneOfTwo checks that a sandbox runs, in the state before or after the operation.
func (w *world) isOneOfTwo(source api.SandboxInfo, mark string) {
	w.t.Helper()
	info, err := w.d.Client.Sandbox(w.t.Context(), source.ID)
	if err != nil || info.Status != api.SandboxRunning || info.PID == nil {
		w.t.Fatalf("the sandbox is %+v, %v", info, err)
	}
	if *info.PID == *source.PID {
		w.marked(source.ID, mark)
	} else if got := w.sh(source.ID, "ls /dev/shm/mark /root/mark 2>/dev/null || true"); got != "" || info.RolledBackTo != parentTag {
		w.t.Errorf("it is rolled back to %q, with %q", info.RolledBackTo, got)
	}
}

// failed checks that a sandbox with a killed VMM is listed as failed, with the reason. If id is
// empty, any sandbox is accepted.
func (w *world) failed(id string) {
	w.t.Helper()
	w.eventually("failed sandbox", func() bool {
		list, err := w.d.Client.ListSandboxes(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		return slices.ContainsFunc(list, func(sb api.SandboxInfo) bool {
			return (id == "" || sb.ID == id) && sb.Status == api.SandboxFailed && strings.Contains(sb.Reason, "killed")
		})
	})
}

// listedIsWhole checks all listed objects: snapshots verify and can be forked, running sandboxes
// answer. It reports whether the operation's snapshot exists.
func (w *world) listedIsWhole(mark string) (made bool) {
	w.t.Helper()
	list, err := w.d.Client.ListSnapshots(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sn := range list {
		switch {
		case sn.Status != api.SnapshotReady || !sn.Bootable:
			w.t.Errorf("snapshot %s is %s: %v", sn.Tag, sn.Status, sn.Warning)
		case sn.Tag == parentTag:
		case sn.Transient && strings.HasPrefix(sn.Tag, "pause-"): // a resumed sandbox is built on it
			w.verified(sn.Tag)
		case sn.Tag == newTag:
			made = true
			w.t.Log("the snapshot is there")
			w.verified(sn.Tag)
			child := w.fork(sn.Tag)
			if mark != "" {
				w.marked(child.ID, mark)
			}
		default:
			w.t.Errorf("snapshot %s is listed", sn.Tag)
		}
	}
	sbs, err := w.d.Client.ListSandboxes(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, sb := range sbs {
		if sb.Status == api.SandboxRunning {
			w.sh(sb.ID, "true")
		}
	}
	return made
}
