package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/receipt"
)

func (h *host) pause(e *Engine, id string) sandbox.Info {
	h.t.Helper()
	return h.pauseBy(e, id, sandbox.PauseOptions{})
}

func (h *host) pauseBy(e *Engine, id string, opt sandbox.PauseOptions) sandbox.Info {
	h.t.Helper()
	info, err := e.Pause(h.t.Context(), id, opt)
	if err != nil {
		h.t.Fatal(err)
	}
	return info
}

func (h *host) resume(e *Engine, id string) sandbox.Info {
	h.t.Helper()
	info, err := e.Resume(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return info
}

// pausedRecords returns the names of the records of paused sandboxes.
func (h *host) pausedRecords() string {
	entries, err := os.ReadDir(filepath.Join(h.cfg.StoreDir, "paused"))
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, en := range entries {
		names = append(names, en.Name())
	}
	return strings.Join(names, " ")
}

// pauses returns the stored snapshots sandboxes are or were paused in.
func (h *host) pauses() (tags []string) {
	for _, name := range strings.Fields(h.stored()) {
		if strings.HasPrefix(name, "pause-") {
			tags = append(tags, name)
		}
	}
	return tags
}

// pauseHost returns an engine with a snapshot "d" and a sandbox of it with a disk.
func pauseHost(t *testing.T) (*host, *Engine, sandbox.Info) {
	t.Helper()
	h := newHost(t)
	e := h.open()
	return h, e, h.disky(e, 1)[0]
}

// A sandbox is repeatedly paused and resumed. While it is paused, only one snapshot and its record
// exist, however often it was paused.
func TestASandboxIsPausedAndGoesOn(t *testing.T) {
	h, e, sb := pauseHost(t)
	same, entropy := h.identityOf(e, sb.ID)
	seen := map[string]bool{entropy: true}
	for round := range 4 {
		before, err := e.Get(sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		info := h.pause(e, sb.ID)
		if info.Status != sandbox.StatusPaused || info.PID != 0 || !strings.HasPrefix(info.PausedIn, "pause-"+sb.ID+"-") {
			t.Fatalf("paused: %+v", info)
		}
		h.empty()
		eventually(t, "end of its VM", processGone(before.PID))
		if left := h.overlayFiles(); left != "" {
			t.Errorf("overlay files: %s", left)
		}
		if got := h.pauses(); !reflect.DeepEqual(got, []string{info.PausedIn}) {
			t.Errorf("round %d: pauses stored are %q", round, got)
		}
		if got := h.pausedRecords(); got != sb.ID+".json" {
			t.Errorf("records: %q", got)
		}
		for what, err := range map[string]error{
			"exec": errorOf(e.Exec(t.Context(), sb.ID, sandbox.ExecRequest{Args: []string{"true"}})),
			"eval": errorOf(e.Eval(t.Context(), sb.ID, sandbox.EvalRequest{Code: "index"})),
			"dial": errorOf(e.DialAgent(t.Context(), sb.ID)), "port": errorOf(e.DialPort(t.Context(), sb.ID, 80)),
			"branch":   h.branch(e, sb.ID, "x"),
			"rollback": errorOf(e.Rollback(t.Context(), sb.ID, "d")),
			"pause":    errorOf(e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})),
			"console":  errorOf(e.Console(sb.ID)), "memory": errorOf(e.Memory(sb.ID)),
		} {
			h.wantPaused(what, err)
		}
		if round == 2 {
			e = h.reboot(e)
		}
		after := h.resume(e, sb.ID)
		if after.Status != sandbox.StatusRunning || after.PID == 0 || after.PID == before.PID || after.PausedIn != info.PausedIn {
			t.Errorf("resumed: %+v", after)
		}
		again := h.resume(e, sb.ID)
		again.Unused, after.Unused = 0, 0
		if !reflect.DeepEqual(again, after) {
			t.Errorf("resume of one that runs: %+v, want %+v", again, after)
		}
		now, entropy := h.identityOf(e, sb.ID)
		if now != same || seen[entropy] {
			t.Errorf("identity %q, entropy %s; before it was %q", now, entropy, same)
		}
		seen[entropy] = true
		if got := h.pausedRecords(); got != "" {
			t.Errorf("records of one that runs: %q", got)
		}
	}
	// It can be branched and rolled back like any other.
	if err := h.branch(e, sb.ID, "later"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Rollback(t.Context(), sb.ID, "later"); err != nil {
		t.Fatal(err)
	}
	if got := h.pauses(); len(got) != 0 {
		t.Errorf("after a rollback: %q", got)
	}
	for _, op := range []receipt.Op{receipt.Pause, receipt.Resume} {
		list, err := e.Receipts(receipt.Filter{Kind: receipt.OfSandbox, Of: sb.ID, Op: op})
		if err != nil || len(list) != 4 || list[0].Error != "" {
			t.Errorf("%s: %d receipts, %v", op, len(list), err)
		}
	}
	h.pause(e, sb.ID)
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing left", func() bool { return len(h.pauses()) == 0 && h.pausedRecords() == "" })
}

// wantPaused checks the refusal of a request to a paused sandbox.
func (h *host) wantPaused(what string, err error) {
	h.t.Helper()
	var told *sandbox.Error
	if !errors.Is(err, sandbox.ErrConflict) || !errors.As(err, &told) || told.Reason() != sandbox.ReasonSandboxPaused {
		h.t.Errorf("%s of a paused one: %v", what, err)
	}
}

// reboot returns the next daemon after a reboot.
func (h *host) reboot(e *Engine) *Engine {
	h.t.Helper()
	h.close(e)
	h.clearRun()
	return h.open()
}

// clearRun simulates a reboot: all VMs end, and the run directory is gone.
func (h *host) clearRun() {
	h.t.Helper()
	h.killAll()
	if err := os.RemoveAll(filepath.Join(h.cfg.RunDir, "vm")); err != nil {
		h.t.Fatal(err)
	}
}

func errorOf[T any](_ T, err error) error { return err }

// On every failure of a pause, the sandbox keeps running and no files remain.
func TestAPauseThatFails(t *testing.T) {
	h, e, sb := pauseHost(t)
	for fault, kind := range map[string]error{
		"capture-full": sandbox.ErrNoSpace, "captured-fail": sandbox.ErrNoSpace, "capture-fail": errAny,
		"capture-late": errAny, "capture-goes-on": errAny,
	} {
		h.fault(fault, 1)
		_, err := e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})
		wantError(t, err, kind)
		info, err := e.Get(sb.ID)
		if err != nil || info.Status != sandbox.StatusRunning || info.PID != sb.PID {
			t.Fatalf("%s: %+v, %v", fault, info, err)
		}
		h.eval(e, sb.ID, "index")
		if got := h.pauses(); len(got) != 0 || h.pausedRecords() != "" {
			t.Errorf("%s: left %q %q", fault, got, h.pausedRecords())
		}
	}
	// The record cannot be written.
	dir := filepath.Join(h.cfg.StoreDir, "paused")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_, err := e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})
	wantError(t, err, errAny, "record")
	if got := h.pauses(); len(got) != 0 {
		t.Errorf("left %q", got)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h.eval(e, sb.ID, "index")
	_, err = e.Pause(t.Context(), "sb-none", sandbox.PauseOptions{})
	wantError(t, err, sandbox.ErrNotFound)
	_, err = e.Resume(t.Context(), "sb-none")
	wantError(t, err, sandbox.ErrNotFound)
	h.pause(e, sb.ID) // this time it works
}

// A resume continues the same machine. A fork is another one.
func TestAResumeIsTheSameMachine(t *testing.T) {
	h, e, sb := pauseHost(t)
	if got := h.eval(e, sb.ID, "same_machine"); got != "false" {
		t.Errorf("a fork: same machine is %s", got)
	}
	h.pause(e, sb.ID)
	h.resume(e, sb.ID)
	if got := h.eval(e, sb.ID, "same_machine"); got != "true" {
		t.Errorf("a resume: same machine is %s", got)
	}
}

// On every failure of a resume, the sandbox stays paused unchanged.
func TestAResumeThatFails(t *testing.T) {
	h, e, sb := pauseHost(t)
	before := h.pause(e, sb.ID)
	for _, fault := range []string{"spawn", "restore-fail", "restore-die", "identity-die", "identity-clone"} {
		h.fault(fault, 1)
		_, err := e.Resume(t.Context(), sb.ID)
		wantError(t, err, errAny)
		if info, err := e.Get(sb.ID); err != nil || !reflect.DeepEqual(info, before) {
			t.Errorf("%s: %+v, %v", fault, info, err)
		}
		h.empty()
	}
	h.change(e, func(h *host) { h.available = 0 })
	_, err := e.Resume(t.Context(), sb.ID)
	wantError(t, err, sandbox.ErrNoMemory)
	h.change(e, func(h *host) { h.available = 64 << 30 })
	if _, err := e.Resume(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
}

// doomedToPause is the work of a daemon that is killed at one of its steps.
func (e *Engine) doomedToPause(ctx context.Context, opt sandbox.PauseOptions) error {
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
func afterEach(t *testing.T, steps []pauseStep, kill func(*host, string), check func(*host, *Engine, sandbox.Info, pauseStep)) {
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
				h := newHost(t)
				h.makeUpper()
				kill(h, string(c.step))
				pids := h.journalled()
				if reboot {
					h.clearRun()
				}
				e := h.open()
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
						eventually(t, "end of the other VM", processGone(pid))
					}
				}
				if c.paused {
					h.empty()
					if left := h.overlayFiles(); left != "" {
						t.Errorf("overlay files: %q", left)
					}
				}
				check(h, e, l[0], c)
				if err := e.Kill(t.Context(), l[0].ID); err != nil {
					t.Fatal(err)
				}
				// The sweep of transient snapshots may have begun to delete it just before the kill
				// would.
				eventually(t, "nothing left", func() bool {
					return len(h.pauses()) == 0 && h.pausedRecords() == "" && h.overlayFiles() == ""
				})
			})
		}
	}
}

// isItself checks that a sandbox works, has one VM, and has between one and the given number of
// files.
func (h *host) isItself(e *Engine, id string, files int) {
	h.t.Helper()
	if got := h.eval(e, id, "sandbox_id"); got != id {
		h.t.Errorf("it says that it is %q", got)
	}
	if d, o := strings.Fields(h.runDirs()), strings.Fields(h.overlayFiles()); len(d) != 1 || len(o) < 1 || len(o) > files {
		h.t.Errorf("run directories %q, overlay files %q", d, o)
	}
}

// A daemon is killed at every step of a pause and of a resume. Under the next one the sandbox runs
// or is completely paused, and no other files are left.
func TestADaemonKilledAtAStepOfAPause(t *testing.T) {
	afterEach(t, pauseSteps, (*host).killDaemonAt, func(h *host, e *Engine, sb sandbox.Info, c pauseStep) {
		if c.paused {
			h.resume(e, sb.ID)
		}
		eventually(h.t, "the snapshots that are needed", func() bool {
			runs := mustGet(h.t, e, sb.ID).PausedIn
			return strings.Join(h.pauses(), " ") == runs
		})
		h.isItself(e, sb.ID, 2)
		h.pause(e, sb.ID)
		h.resume(e, sb.ID)
	})
}

// killDuring kills a sandbox at a step of its pause or resume, and checks that it is removed
// completely.
func killDuring(t *testing.T, step failpoint.Step, opt sandbox.PauseOptions) {
	h, e, sb := pauseHost(t)
	resuming := strings.HasPrefix(string(step), "resume")
	if resuming {
		h.pauseBy(e, sb.ID, opt)
	}
	killed := make(chan error, 1)
	var once sync.Once
	unset := failpoint.Set(func(s failpoint.Step) error {
		if s == step {
			once.Do(func() {
				go func() { killed <- e.Kill(context.Background(), sb.ID) }()
				eventually(t, "beginning of the kill", func() bool { _, err := e.Get(sb.ID); return err != nil })
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
	eventually(t, "nothing left after "+string(step), func() bool {
		return h.stored()+h.pausedRecords()+h.overlayFiles() == "d" && !strings.Contains(strings.Join(pinNames(t, e), " "), "vm.")
	})
	h.empty()
}

func TestAKillDuringAPause(t *testing.T) {
	for _, c := range pauseSteps {
		killDuring(t, c.step, sandbox.PauseOptions{})
	}
}

// dieDuring pauses a sandbox and kills its VM at a step.
func dieDuring(t *testing.T, step failpoint.Step) (*host, *Engine, sandbox.Info, error) {
	h, e, sb := pauseHost(t)
	_, vm, err := e.sandboxes.Running(sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer failpoint.Set(func(s failpoint.Step) error {
		if s == step {
			unix.Kill(sb.PID, unix.SIGKILL)
			eventually(t, "end of the VM", func() bool { return !vm.Alive() })
			unix.Nanosleep(&unix.Timespec{Nsec: 20e6}, nil) // elapses: whoever is told of its end acts
		}
		return nil
	})()
	_, err = e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{})
	return h, e, sb, err
}

// If a sandbox's VM dies during its pause, the sandbox has failed.
func TestAVMThatDiesDuringAPause(t *testing.T) {
	h, e, sb, err := dieDuring(t, failpoint.PauseCaptured)
	wantError(t, err, errAny)
	eventually(t, "failure", failed(e, sb.ID))
	if got := h.pauses(); len(got) != 0 || h.pausedRecords() != "" {
		t.Errorf("left %q", got)
	}
	_, err = e.Resume(t.Context(), sb.ID)
	wantError(t, err, sandbox.ErrGuestGone)
}

// If its snapshot was complete by then, it has not failed: it is paused.
func TestAVMThatDiesAtTheEndOfItsPause(t *testing.T) {
	h, e, sb, err := dieDuring(t, failpoint.PauseWritten)
	if err != nil {
		t.Fatal(err)
	}
	h.resume(e, sb.ID)
	h.isItself(e, sb.ID, 2)
}

// Many concurrent requests for a paused sandbox resume it once, and all succeed.
func TestAStampedeResumesOnce(t *testing.T) {
	h, e, sb := pauseHost(t)
	if _, err := e.SetLife(t.Context(), sb.ID, sandbox.Life{AutoResume: true}); err != nil {
		t.Fatal(err)
	}
	h.pause(e, sb.ID)
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
		"eval": func() error { return errorOf(e.Eval(t.Context(), sb.ID, sandbox.EvalRequest{Code: "index"})) },
		"dial": func() error {
			c, err := e.DialAgent(t.Context(), sb.ID)
			if err == nil {
				c.Close()
			}
			return err
		},
	} {
		h.pause(e, sb.ID)
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The snapshot of a paused sandbox is in use, like that of a running one. Deleted by force, it is
// kept until its last user is gone.
func TestTheSnapshotOfAPausedSandboxIsInUse(t *testing.T) {
	h, e, sb := pauseHost(t)
	info := h.pause(e, sb.ID)
	wantError(t, e.DeleteSnapshot(t.Context(), info.PausedIn, sandbox.DeleteOptions{}), sandbox.ErrConflict, sb.ID)
	wantError(t, e.DeleteSnapshot(t.Context(), "d", sandbox.DeleteOptions{}), sandbox.ErrConflict)
	wantError(t, e.DeleteSnapshot(t.Context(), "d", sandbox.DeleteOptions{Cascade: true}), sandbox.ErrConflict, sb.ID)
	for _, tag := range []string{"d", info.PausedIn} {
		if err := e.DeleteSnapshot(t.Context(), tag, sandbox.DeleteOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.CollectLayers(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	h.close(e)
	e = h.open()
	h.resume(e, sb.ID)
	h.eval(e, sb.ID, "index")
	h.pause(e, sb.ID)
	h.resume(e, sb.ID)
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an empty store", func() bool {
		r, err := e.CollectLayers(t.Context(), true)
		left, _ := os.ReadDir(filepath.Join(h.cfg.StoreDir, "layers"))
		files := 0
		for _, en := range left {
			if en.Type().IsRegular() {
				files++
			}
		}
		return err == nil && len(r.Layers) == 0 && h.stored() == ""
	})
}

// An unreadable record is left alone, and so is the snapshot it may refer to.
func TestARecordThatCannotBeRead(t *testing.T) {
	h, e, sb := pauseHost(t)
	info := h.pause(e, sb.ID)
	h.close(e)
	file := filepath.Join(h.cfg.StoreDir, "paused", sb.ID+".json")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"version": 2}`, strings.Replace(string(whole), sb.ID, "sb-00000000-0001", 1)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		e = h.open()
		if _, err := e.Get(sb.ID); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%q: %v", text, err)
		}
		e.families.Sweep(t.Context())
		h.close(e)
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	e = h.open()
	if got := h.resume(e, sb.ID); got.PausedIn != info.PausedIn {
		t.Errorf("%+v", got)
	}
}
