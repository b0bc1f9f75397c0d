package op_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/receipt"
)

// pausedRecords returns the names of the records of paused sandboxes.
func pausedRecords(h *enginefake.Host) string {
	entries, err := os.ReadDir(filepath.Join(h.Cfg.StoreDir, "paused"))
	if err != nil {
		h.T.Fatal(err)
	}
	var names []string
	for _, en := range entries {
		names = append(names, en.Name())
	}
	return strings.Join(names, " ")
}

// pauses returns the stored snapshots sandboxes are or were paused in.
func pauses(h *enginefake.Host) (tags []string) {
	for _, name := range strings.Fields(h.Stored()) {
		if strings.HasPrefix(name, "pause-") {
			tags = append(tags, name)
		}
	}
	return tags
}

// A sandbox is repeatedly paused and resumed. While it is paused, only one snapshot and its record
// exist, however often it was paused.
func TestASandboxIsPausedAndGoesOn(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	same, entropy := identityOf(h, e, sb.ID)
	seen := map[string]bool{entropy: true}
	for round := range 4 {
		before, err := e.Get(sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		info := h.Pause(e, sb.ID)
		if info.Status != sandbox.StatusPaused || info.PID != 0 || !strings.HasPrefix(info.PausedIn, "pause-"+sb.ID+"-") {
			t.Fatalf("paused: %+v", info)
		}
		h.Empty()
		enginefake.Eventually(t, "end of its VM", processGone(before.PID))
		if left := h.OverlayFiles(); left != "" {
			t.Errorf("overlay files: %s", left)
		}
		if got := pauses(h); !reflect.DeepEqual(got, []string{info.PausedIn}) {
			t.Errorf("round %d: pauses stored are %q", round, got)
		}
		if got := pausedRecords(h); got != sb.ID+".json" {
			t.Errorf("records: %q", got)
		}
		for what, err := range map[string]error{
			"exec": enginefake.ErrorOf(e.Exec(t.Context(), sb.ID, sandbox.ExecRequest{Args: []string{"true"}})),
			"eval": enginefake.ErrorOf(e.Eval(t.Context(), sb.ID, sandbox.EvalRequest{Code: "index"})),
			"dial": enginefake.ErrorOf(e.DialAgent(t.Context(), sb.ID)), "port": enginefake.ErrorOf(e.DialPort(t.Context(), sb.ID, 80)),
			"branch":   h.Branch(e, sb.ID, "x"),
			"rollback": enginefake.ErrorOf(e.Rollback(t.Context(), sb.ID, "d")),
			"pause":    enginefake.ErrorOf(e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})),
			"console":  enginefake.ErrorOf(e.Console(sb.ID)), "memory": enginefake.ErrorOf(e.Memory(sb.ID)),
		} {
			enginefake.WantPaused(h, what, err)
		}
		if round == 2 {
			e = reboot(h, e)
		}
		after := h.Resume(e, sb.ID)
		if after.Status != sandbox.StatusRunning || after.PID == 0 || after.PID == before.PID || after.PausedIn != info.PausedIn {
			t.Errorf("resumed: %+v", after)
		}
		again := h.Resume(e, sb.ID)
		again.Unused, after.Unused = 0, 0
		if !reflect.DeepEqual(again, after) {
			t.Errorf("resume of one that runs: %+v, want %+v", again, after)
		}
		now, entropy := identityOf(h, e, sb.ID)
		if now != same || seen[entropy] {
			t.Errorf("identity %q, entropy %s; before it was %q", now, entropy, same)
		}
		seen[entropy] = true
		if got := pausedRecords(h); got != "" {
			t.Errorf("records of one that runs: %q", got)
		}
	}
	// It can be branched and rolled back like any other.
	if err := h.Branch(e, sb.ID, "later"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Rollback(t.Context(), sb.ID, "later"); err != nil {
		t.Fatal(err)
	}
	if got := pauses(h); len(got) != 0 {
		t.Errorf("after a rollback: %q", got)
	}
	for _, op := range []receipt.Op{receipt.Pause, receipt.Resume} {
		list, err := e.Receipts(receipt.Filter{Kind: receipt.OfSandbox, Of: sb.ID, Op: op})
		if err != nil || len(list) != 4 || list[0].Error != "" {
			t.Errorf("%s: %d receipts, %v", op, len(list), err)
		}
	}
	h.Pause(e, sb.ID)
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "nothing left", func() bool { return len(pauses(h)) == 0 && pausedRecords(h) == "" })
}

// reboot returns the next daemon after a reboot.
func reboot(h *enginefake.Host, e *engine.Engine) *engine.Engine {
	h.T.Helper()
	h.Close(e)
	clearRun(h)
	return h.Open()
}

// clearRun simulates a reboot: all VMs end, and the run directory is gone.
func clearRun(h *enginefake.Host) {
	h.T.Helper()
	h.KillAll()
	if err := os.RemoveAll(filepath.Join(h.Cfg.RunDir, "vm")); err != nil {
		h.T.Fatal(err)
	}
}

// On every failure of a pause, the sandbox keeps running and no files remain.
func TestAPauseThatFails(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	for fault, kind := range map[string]error{
		"capture-full": sandbox.ErrNoSpace, "captured-fail": sandbox.ErrNoSpace, "capture-fail": enginefake.ErrAny,
		"capture-late": enginefake.ErrAny, "capture-goes-on": enginefake.ErrAny,
	} {
		h.Fault(fault, 1)
		_, err := e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})
		enginefake.WantError(t, err, kind)
		info, err := e.Get(sb.ID)
		if err != nil || info.Status != sandbox.StatusRunning || info.PID != sb.PID {
			t.Fatalf("%s: %+v, %v", fault, info, err)
		}
		h.Eval(e, sb.ID, "index")
		if got := pauses(h); len(got) != 0 || pausedRecords(h) != "" {
			t.Errorf("%s: left %q %q", fault, got, pausedRecords(h))
		}
	}
	// The record cannot be written.
	dir := filepath.Join(h.Cfg.StoreDir, "paused")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_, err := e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})
	enginefake.WantError(t, err, enginefake.ErrAny, "record")
	if got := pauses(h); len(got) != 0 {
		t.Errorf("left %q", got)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h.Eval(e, sb.ID, "index")
	_, err = e.Pause(t.Context(), "sb-none", sandbox.PauseOptions{})
	enginefake.WantError(t, err, sandbox.ErrNotFound)
	_, err = e.Resume(t.Context(), "sb-none")
	enginefake.WantError(t, err, sandbox.ErrNotFound)
	h.Pause(e, sb.ID) // this time it works
}

// A resume continues the same machine. A fork is another one.
func TestAResumeIsTheSameMachine(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	if got := h.Eval(e, sb.ID, "same_machine"); got != "false" {
		t.Errorf("a fork: same machine is %s", got)
	}
	h.Pause(e, sb.ID)
	h.Resume(e, sb.ID)
	if got := h.Eval(e, sb.ID, "same_machine"); got != "true" {
		t.Errorf("a resume: same machine is %s", got)
	}
}

// On every failure of a resume, the sandbox stays paused unchanged.
func TestAResumeThatFails(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	before := h.Pause(e, sb.ID)
	for _, fault := range []string{"spawn", "restore-fail", "restore-die", "identity-die", "identity-clone"} {
		h.Fault(fault, 1)
		_, err := e.Resume(t.Context(), sb.ID)
		enginefake.WantError(t, err, enginefake.ErrAny)
		if info, err := e.Get(sb.ID); err != nil || !reflect.DeepEqual(info, before) {
			t.Errorf("%s: %+v, %v", fault, info, err)
		}
		h.Empty()
	}
	h.Change(e, func(h *enginefake.Host) { h.Available = 0 })
	_, err := e.Resume(t.Context(), sb.ID)
	enginefake.WantError(t, err, sandbox.ErrNoMemory)
	h.Change(e, func(h *enginefake.Host) { h.Available = 64 << 30 })
	if _, err := e.Resume(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
}

// doomedToPause and doomedToPauseCold are the work of a daemon that is killed at one of its steps.
func doomedToPause(ctx context.Context, e *engine.Engine, _ engine.Config) error {
	return pauseAndResume(ctx, e, sandbox.PauseOptions{})
}

func doomedToPauseCold(ctx context.Context, e *engine.Engine, _ engine.Config) error {
	return pauseAndResume(ctx, e, sandbox.PauseOptions{FilesystemOnly: true})
}

func pauseAndResume(ctx context.Context, e *engine.Engine, opt sandbox.PauseOptions) error {
	if _, err := e.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: "d", Image: "disky"}, nil); err != nil {
		return err
	}
	r, err := e.Fork(ctx, sandbox.ForkRequest{Tag: "d", N: 1})
	if err != nil {
		return err
	}
	id := r.Children[0].Info.ID
	if _, err := e.Pause(ctx, id, opt); err != nil {
		return err
	}
	_, err = e.Resume(ctx, id)
	return err
}

// pauseStep is a step of a pause or of a resume, and whether the sandbox is paused when the daemon
// is killed there.
type pauseStep struct {
	step   failpoint.Step
	paused bool
}

var pauseSteps = []pauseStep{
	{failpoint.PauseCaptured, false}, {failpoint.PauseWritten, false}, {failpoint.PauseRecorded, true},
	{failpoint.ResumeRestored, true}, {failpoint.ResumeConfirmed, true}, {failpoint.ResumeRecorded, true},
	{failpoint.ResumeHeld, false},
}

// afterEach calls kill to end a daemon at each step, and also the host where this makes no
// difference. It calls check with the next daemon and its one sandbox, then kills the sandbox and
// checks that no files are left.
func afterEach(t *testing.T, steps []pauseStep, kill func(*enginefake.Host, string), check func(*enginefake.Host, *engine.Engine, sandbox.Info, pauseStep)) {
	for _, c := range steps {
		for _, reboot := range []bool{false, true} {
			if reboot && !c.paused { // a running sandbox ends with the host
				continue
			}
			name := string(c.step)
			if reboot {
				name += " and a reboot"
			}
			t.Run(name, func(t *testing.T) {
				h := enginefake.NewHost(t)
				h.MakeUpper()
				kill(h, string(c.step))
				pids := h.Journalled()
				if reboot {
					clearRun(h)
				}
				e := h.Open()
				l := e.List()
				want := sandbox.StatusRunning
				if c.paused {
					want = sandbox.StatusPaused
				}
				if len(l) != 1 || l[0].Status != want {
					t.Fatalf("listed: %+v, want one that is %s", l, want)
				}
				for _, pid := range pids {
					if pid != l[0].PID {
						enginefake.Eventually(t, "end of the other VM", processGone(pid))
					}
				}
				if c.paused {
					h.Empty()
					if left := h.OverlayFiles(); left != "" {
						t.Errorf("overlay files: %q", left)
					}
				}
				check(h, e, l[0], c)
				if err := e.Kill(t.Context(), l[0].ID); err != nil {
					t.Fatal(err)
				}
				// The sweep of transient snapshots may have begun to delete it just before the kill
				// would.
				enginefake.Eventually(t, "nothing left", func() bool {
					return len(pauses(h)) == 0 && pausedRecords(h) == "" && h.OverlayFiles() == ""
				})
			})
		}
	}
}

// isItself checks that a sandbox works, has one VM, and has between one and the given number of
// files.
func isItself(h *enginefake.Host, e *engine.Engine, id string, files int) {
	h.T.Helper()
	if got := h.Eval(e, id, "sandbox_id"); got != id {
		h.T.Errorf("it says that it is %q", got)
	}
	if d, o := strings.Fields(runDirs(h)), strings.Fields(h.OverlayFiles()); len(d) != 1 || len(o) < 1 || len(o) > files {
		h.T.Errorf("run directories %q, overlay files %q", d, o)
	}
}

// A daemon is killed at every step of a pause and of a resume. Under the next one the sandbox runs
// or is completely paused, and no other files are left.
func TestADaemonKilledAtAStepOfAPause(t *testing.T) {
	kill := func(h *enginefake.Host, step string) { enginefake.KillDaemonAt(h, "pause", step) }
	afterEach(t, pauseSteps, kill, func(h *enginefake.Host, e *engine.Engine, sb sandbox.Info, c pauseStep) {
		if c.paused {
			h.Resume(e, sb.ID)
		}
		enginefake.Eventually(h.T, "the snapshots that are needed", func() bool {
			runs := enginefake.MustGet(h.T, e, sb.ID).PausedIn
			return strings.Join(pauses(h), " ") == runs
		})
		isItself(h, e, sb.ID, 2)
		h.Pause(e, sb.ID)
		h.Resume(e, sb.ID)
	})
}

// killDuring kills a sandbox at a step of its pause or resume, and checks that it is removed
// completely.
func killDuring(t *testing.T, step failpoint.Step, opt sandbox.PauseOptions) {
	h, e, sb := enginefake.PauseHost(t)
	resuming := strings.HasPrefix(string(step), "resume")
	if resuming {
		h.PauseBy(e, sb.ID, opt)
	}
	killed := make(chan error, 1)
	var once sync.Once
	unset := failpoint.Set(func(s failpoint.Step) error {
		if s == step {
			once.Do(func() {
				go func() { killed <- e.Kill(context.Background(), sb.ID) }()
				enginefake.Eventually(t, "beginning of the kill", func() bool { _, err := e.Get(sb.ID); return err != nil })
			})
		}
		return nil
	})
	if resuming {
		e.Resume(t.Context(), sb.ID)
	} else {
		e.Pause(t.Context(), sb.ID, opt)
	}
	if err := <-killed; err != nil {
		t.Errorf("%s: %v", step, err)
	}
	unset()
	enginefake.Eventually(t, "nothing left after "+string(step), func() bool {
		return h.Stored()+pausedRecords(h)+h.OverlayFiles() == "d" && !strings.Contains(strings.Join(pinNames(t, h), " "), "vm.")
	})
	h.Empty()
}

func TestAKillDuringAPause(t *testing.T) {
	for _, c := range pauseSteps {
		killDuring(t, c.step, sandbox.PauseOptions{})
	}
}

// dieDuring pauses a sandbox and kills its VM at a step.
func dieDuring(t *testing.T, step failpoint.Step) (*enginefake.Host, *engine.Engine, sandbox.Info, error) {
	h, e, sb := enginefake.PauseHost(t)
	defer failpoint.Set(func(s failpoint.Step) error {
		if s == step {
			unix.Kill(sb.PID, unix.SIGKILL)
			enginefake.Eventually(t, "end of the VM", processGone(sb.PID))
			unix.Nanosleep(&unix.Timespec{Nsec: 20e6}, nil) // elapses: whoever is told of its end acts
		}
		return nil
	})()
	_, err := e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})
	return h, e, sb, err
}

// If a sandbox's VM dies during its pause, the sandbox has failed.
func TestAVMThatDiesDuringAPause(t *testing.T) {
	h, e, sb, err := dieDuring(t, failpoint.PauseCaptured)
	enginefake.WantError(t, err, enginefake.ErrAny)
	enginefake.Eventually(t, "failure", enginefake.Failed(e, sb.ID))
	if got := pauses(h); len(got) != 0 || pausedRecords(h) != "" {
		t.Errorf("left %q", got)
	}
	_, err = e.Resume(t.Context(), sb.ID)
	enginefake.WantError(t, err, sandbox.ErrGuestGone)
}

// If its snapshot was complete by then, it has not failed: it is paused.
func TestAVMThatDiesAtTheEndOfItsPause(t *testing.T) {
	h, e, sb, err := dieDuring(t, failpoint.PauseWritten)
	if err != nil {
		t.Fatal(err)
	}
	h.Resume(e, sb.ID)
	isItself(h, e, sb.ID, 2)
}

// Many concurrent requests for a paused sandbox resume it once, and all succeed.
func TestAStampedeResumesOnce(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	if _, err := e.SetLife(t.Context(), sb.ID, sandbox.Life{AutoResume: true}); err != nil {
		t.Fatal(err)
	}
	h.Pause(e, sb.ID)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := e.Eval(t.Context(), sb.ID, sandbox.EvalRequest{Code: "index"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	list, err := e.Receipts(receipt.Filter{Kind: receipt.OfSandbox, Of: sb.ID, Op: receipt.Resume})
	if err != nil || len(list) != 1 {
		t.Errorf("%d resumes, %v", len(list), err)
	}
	for what, do := range map[string]func() error{
		"eval": func() error {
			return enginefake.ErrorOf(e.Eval(t.Context(), sb.ID, sandbox.EvalRequest{Code: "index"}))
		},
		"dial": func() error {
			c, err := e.DialAgent(t.Context(), sb.ID)
			if err == nil {
				c.Close()
			}
			return err
		},
	} {
		h.Pause(e, sb.ID)
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The snapshot of a paused sandbox is in use, like that of a running one. Deleted by force, it is
// kept until its last user is gone.
func TestTheSnapshotOfAPausedSandboxIsInUse(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	info := h.Pause(e, sb.ID)
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), info.PausedIn, sandbox.DeleteOptions{}), sandbox.ErrConflict, sb.ID)
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "d", sandbox.DeleteOptions{}), sandbox.ErrConflict)
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "d", sandbox.DeleteOptions{Cascade: true}), sandbox.ErrConflict, sb.ID)
	for _, tag := range []string{"d", info.PausedIn} {
		if err := e.DeleteSnapshot(t.Context(), tag, sandbox.DeleteOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.CollectLayers(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	h.Close(e)
	e = h.Open()
	h.Resume(e, sb.ID)
	h.Eval(e, sb.ID, "index")
	h.Pause(e, sb.ID)
	h.Resume(e, sb.ID)
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "an empty store", func() bool {
		r, err := e.CollectLayers(t.Context(), true)
		left, _ := os.ReadDir(filepath.Join(h.Cfg.StoreDir, "layers"))
		files := 0
		for _, en := range left {
			if en.Type().IsRegular() {
				files++
			}
		}
		return err == nil && len(r.Layers) == 0 && h.Stored() == ""
	})
}
