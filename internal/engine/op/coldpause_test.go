package op_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/store/receipt"
)

func pauseCold(h *enginefake.Host, e *engine.Engine, id string) sandbox.Info {
	h.T.Helper()
	return h.PauseBy(e, id, sandbox.PauseOptions{FilesystemOnly: true})
}

// readDisk returns a sandbox's view of its disk, read from the files alone.
func readDisk(h *enginefake.Host, id string, off int64, n int) string {
	h.T.Helper()
	text := make([]byte, n)
	enginefake.OpenOverlay(h, id, func(d *overlay.Disk) {
		if _, err := d.ReadAt(text, off); err != nil {
			h.T.Fatal(err)
		}
	})
	return string(text)
}

// coldRecord returns the names of the files of a sandbox paused without its memory.
func coldRecord(id string) string { return id + ".initrd " + id + ".json " + id + ".kernel" }

// lines returns the number of guests that have written to a sandbox's disk. Each VM has written one
// line, the latest first.
func lines(h *enginefake.Host, id string) int {
	h.T.Helper()
	return len(strings.Split(h.ReadOverlay(id), "\n"))
}

// A sandbox is repeatedly paused without its memory and booted again, on its own disk, as the same
// sandbox.
func TestASandboxIsPausedWithoutItsMemory(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Cfg.Oracle = true
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	same, entropy := identityOf(h, e, sb.ID)
	seen := map[string]bool{entropy: true}
	for round := range 4 {
		before := enginefake.MustGet(t, e, sb.ID)
		guests := lines(h, sb.ID)
		info := pauseCold(h, e, sb.ID)
		if info.Status != sandbox.StatusPaused || info.PID != 0 || !info.Cold || info.PausedIn != "" {
			t.Fatalf("paused: %+v", info)
		}
		h.Empty()
		enginefake.Eventually(t, "end of its VM", processGone(before.PID))
		if left := h.OverlayFiles() + h.Stored(); left != "d" {
			t.Errorf("beside its base: %s", left)
		}
		if got := pausedRecords(h); got != coldRecord(sb.ID) {
			t.Errorf("records: %q", got)
		}
		if _, err := e.CollectLayers(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"exec":   enginefake.ErrorOf(e.Exec(t.Context(), sb.ID, sandbox.ExecRequest{Args: []string{"true"}})),
			"branch": h.Branch(e, sb.ID, "x"), "rollback": enginefake.ErrorOf(e.Rollback(t.Context(), sb.ID, "d")),
			"pause": enginefake.ErrorOf(e.Pause(t.Context(), sb.ID, sandbox.PauseOptions{FilesystemOnly: true})),
		} {
			enginefake.WantPaused(h, what, err)
		}
		switch round {
		case 1:
			e = reboot(h, e)
		case 2: // its idle time is changed while it is paused
			if _, err := e.SetLife(t.Context(), sb.ID, sandbox.Life{Idle: time.Hour}); err != nil {
				t.Fatal(err)
			}
			h.Close(e)
			e = h.Open()
		}
		after := h.Resume(e, sb.ID)
		if after.Status != sandbox.StatusRunning || after.PID == 0 || !after.Cold || after.Owner != sb.Owner ||
			after.Hostname != sb.Hostname || !reflect.DeepEqual(after.Shape, sb.Shape) {
			t.Errorf("resumed: %+v", after)
		}
		if got := lines(h, sb.ID); got != guests+1 {
			t.Errorf("round %d: %d guests have written to its disk, want %d", round, got, guests+1)
		}
		if text := readDisk(h, sb.ID, 8192, 12); text != "written back" {
			t.Errorf("what the guest wrote before it was paused: %q", text)
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
	for _, op := range []receipt.Op{receipt.Pause, receipt.Resume} {
		list, err := e.Receipts(receipt.Filter{Kind: receipt.OfSandbox, Of: sb.ID, Op: op})
		if err != nil || len(list) != 4 || list[0].Error != "" || !list[0].Cold || list[0].Made != nil {
			t.Errorf("%s: %d receipts %+v, %v", op, len(list), list, err)
		}
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if left := h.OverlayFiles() + pausedRecords(h); left != "" {
		t.Errorf("left: %s", left)
	}
}

// The memory of a booted sandbox has no base. Its snapshots are complete all the same: they can be
// forked and rolled back to, and it can be paused with its memory.
func TestWhatBootedIsBranchedAndPaused(t *testing.T) {
	for _, mode := range []sandbox.BranchMode{sandbox.BranchDiff, sandbox.BranchLive, sandbox.BranchFull} {
		t.Run(string(mode), func(t *testing.T) {
			h := enginefake.NewHost(t)
			h.Cfg.Oracle = true
			e := h.Open()
			sb := h.Disky(e, 1)[0]
			pauseCold(h, e, sb.ID)
			h.Resume(e, sb.ID)
			if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b", Mode: mode, N: 1}); err != nil {
				t.Fatal(err)
			}
			if err := h.Branch(e, sb.ID, "again"); err != nil { // its disk continues over its own layers
				t.Fatal(err)
			}
			for _, tag := range []string{"b", "again"} {
				child := h.Fork(e, tag, 1)[0]
				if child.Cold {
					t.Errorf("a child of %s: %+v", tag, child)
				}
			}
			pauseCold(h, e, sb.ID)
			e = reboot(h, e)
			h.Resume(e, sb.ID)
			info := h.Pause(e, sb.ID) // with its memory
			if info.Cold || info.PausedIn == "" || pausedRecords(h) != sb.ID+".json" {
				t.Errorf("paused with its memory: %+v, %q", info, pausedRecords(h))
			}
			if info = h.Resume(e, sb.ID); info.Cold {
				t.Errorf("resumed with its memory: %+v", info)
			}
			info = pauseCold(h, e, sb.ID) // based on the snapshot of its pause
			if !info.Cold || len(pauses(h)) != 1 {
				t.Errorf("%+v, pauses %q", info, pauses(h))
			}
			e = reboot(h, e)
			h.Resume(e, sb.ID)
			if _, err := e.Rollback(t.Context(), sb.ID, "again"); err != nil {
				t.Fatal(err)
			}
			if info = enginefake.MustGet(t, e, sb.ID); info.Cold || len(pauses(h)) != 0 {
				t.Errorf("rolled back: %+v, pauses %q", info, pauses(h))
			}
			if err := h.Branch(e, sb.ID, "last"); err != nil {
				t.Fatal(err)
			}
			h.Fork(e, "last", 1)
		})
	}
}

// On every failure of a pause, the sandbox keeps running and no files remain.
func TestAColdPauseThatFails(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	cold := sandbox.PauseOptions{FilesystemOnly: true}
	ran := func(what string) {
		t.Helper()
		info, err := e.Get(sb.ID)
		if err != nil || info.Status != sandbox.StatusRunning || info.PID != sb.PID || info.Cold {
			t.Fatalf("%s: %+v, %v", what, info, err)
		}
		h.Eval(e, sb.ID, "index")
		if frozen, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, "fake", "frozen-*")); len(frozen) != 0 {
			t.Errorf("%s: the disk is held still: %v", what, frozen)
		}
		if got := h.Stored() + pausedRecords(h); got != "d" {
			t.Errorf("%s: left %q", what, got)
		}
	}
	for fault, kind := range map[string]error{
		"quiesce-fail": enginefake.ErrAny, "pause-fail": enginefake.ErrAny, "freeze-unknown": sandbox.ErrUnsupported,
	} {
		h.Fault(fault, 1)
		if fault == "freeze-unknown" { // of two answers, the second one counts
			h.Fault(fault, 2)
		}
		_, err := e.Pause(t.Context(), sb.ID, cold)
		enginefake.WantError(t, err, kind)
		ran(fault)
	}
	for step, cause := range map[string]error{"layer.commit.sync": unix.ENOSPC, "layer.pin.": unix.ENOSPC} {
		passed := false
		unset := failpoint.Set(func(s failpoint.Step) error {
			if strings.HasPrefix(string(s), step) {
				passed = true
				return cause
			}
			return nil
		})
		_, err := e.Pause(t.Context(), sb.ID, cold)
		unset()
		if !passed {
			t.Errorf("nothing passes %s", step)
		}
		enginefake.WantError(t, err, sandbox.ErrNoSpace)
		ran(step)
	}
	dir := filepath.Join(h.Cfg.StoreDir, "paused") // the record cannot be written
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_, err := e.Pause(t.Context(), sb.ID, cold)
	enginefake.WantError(t, err, enginefake.ErrAny)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ran("no directory")
	h.Pause(e, sb.ID) // with its memory, this time
	h.Resume(e, sb.ID)
	pauseCold(h, e, sb.ID)
	h.Resume(e, sb.ID)
	h.Fault("pause-lost", 1)
	_, err = e.Pause(t.Context(), sb.ID, cold)
	enginefake.WantError(t, err, sandbox.ErrConflict)
	if info := enginefake.MustGet(t, e, sb.ID); info.Status != sandbox.StatusRunning {
		t.Errorf("%+v", info)
	}
}

// A sandbox that could not boot again is not paused without its memory.
func TestWhatCannotBootIsNotPausedCold(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	h.Snapshot(e, "py")
	memoryOnly := h.Fork(e, "py", 1)[0]
	cold := sandbox.PauseOptions{FilesystemOnly: true}
	_, err := e.Pause(t.Context(), memoryOnly.ID, cold)
	enginefake.WantError(t, err, sandbox.ErrUnsupported, "no writable disk")
	_, err = e.Pause(t.Context(), "sb-none", cold)
	enginefake.WantError(t, err, sandbox.ErrNotFound)
	h.Close(e)
	h.Cfg.Images = enginefake.Images{Dir: h.Cfg.Images.(enginefake.Images).Dir, Digest: "sha256:5678"}
	e = h.Open()
	_, err = e.Pause(t.Context(), sb.ID, cold)
	enginefake.WantError(t, err, sandbox.ErrConflict, "built anew")
	h.Eval(e, sb.ID, "index")
}

// The image may be removed while the sandbox is paused. On every failure of a resume, the sandbox
// stays paused unchanged.
func TestAColdResumeThatFails(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	before := pauseCold(h, e, sb.ID)
	if err := os.RemoveAll(h.Cfg.Images.(enginefake.Images).Dir); err != nil {
		t.Fatal(err)
	}
	for _, fault := range []string{"spawn", "boot-panic", "identity-die", "identity-clone"} {
		h.Fault(fault, 1)
		_, err := e.Resume(t.Context(), sb.ID)
		enginefake.WantError(t, err, enginefake.ErrAny)
		if info, err := e.Get(sb.ID); err != nil || !reflect.DeepEqual(info, before) {
			t.Errorf("%s: %+v, %v", fault, info, err)
		}
		h.Empty()
		if left := h.OverlayFiles(); left != "" {
			t.Errorf("%s: overlay files %q", fault, left)
		}
	}
	h.Change(e, func(h *enginefake.Host) { h.Available = 0 })
	_, err := e.Resume(t.Context(), sb.ID)
	enginefake.WantError(t, err, sandbox.ErrNoMemory)
	h.Change(e, func(h *enginefake.Host) { h.Available = 64 << 30 })
	list, err := e.Receipts(receipt.Filter{Kind: receipt.OfSandbox, Of: sb.ID, Op: receipt.Resume})
	if err != nil || len(list) == 0 || list[0].Error == "" || !list[0].Cold {
		t.Errorf("receipts: %+v, %v", list, err)
	}
	h.Resume(e, sb.ID)
	h.Eval(e, sb.ID, "index")
}

// The snapshot it came from may be deleted by force: the files the sandbox needs are kept,
// including its own disk.
func TestTheBaseOfAColdSandboxIsInUse(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	pauseCold(h, e, sb.ID)
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "d", sandbox.DeleteOptions{}), sandbox.ErrConflict, sb.ID)
	if err := e.DeleteSnapshot(t.Context(), "d", sandbox.DeleteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := e.CollectLayers(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		e = reboot(h, e)
	}
	h.Resume(e, sb.ID)
	if text := readDisk(h, sb.ID, 8192, 12); text != "written back" {
		t.Errorf("its disk has %q", text)
	}
	pauseCold(h, e, sb.ID)
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "an empty store", func() bool {
		r, err := e.CollectLayers(t.Context(), true)
		left, _ := filepath.Glob(filepath.Join(h.Cfg.StoreDir, "layers", "*.layer"))
		return err == nil && len(r.Layers) == 0 && len(left) == 0 && h.Stored() == "" && pausedRecords(h) == ""
	})
}

// The steps of a pause without memory and of its resume.
var coldSteps = []pauseStep{
	{failpoint.PauseFlushed, false}, {failpoint.PauseKept, false}, {failpoint.PauseRecorded, true},
	{failpoint.ResumeBooted, true}, {failpoint.ResumeConfirmed, true}, {failpoint.ResumeRecorded, true},
	{failpoint.ResumeHeld, false},
}

// A daemon is killed at every step. Under the next one the sandbox runs or is completely paused,
// and no other files are left.
func TestADaemonKilledAtAStepOfAColdPause(t *testing.T) {
	kill := func(h *enginefake.Host, step string) { enginefake.KillDaemonAt(h, "pause cold", step) }
	afterEach(t, coldSteps, kill, func(h *enginefake.Host, e *engine.Engine, sb sandbox.Info, c pauseStep) {
		if c.paused {
			if got := pausedRecords(h); got != coldRecord(sb.ID) {
				h.T.Errorf("records %q", got)
			}
			h.Resume(e, sb.ID)
		}
		isItself(h, e, sb.ID, 1)
		if got := h.Stored() + pausedRecords(h); got != "d" {
			h.T.Errorf("stored: %q", got)
		}
		pauseCold(h, e, sb.ID)
		h.Resume(e, sb.ID)
		if text := readDisk(h, sb.ID, 8192, 12); text != "written back" {
			h.T.Errorf("its disk has %q", text)
		}
	})
}

// A sandbox killed during its pause or resume is removed completely.
func TestAKillDuringAColdPause(t *testing.T) {
	for _, c := range coldSteps {
		killDuring(t, c.step, sandbox.PauseOptions{FilesystemOnly: true})
	}
}

// An incomplete record is left alone, and files it may refer to are kept.
func TestAColdRecordThatCannotBeRead(t *testing.T) {
	h, e, sb := enginefake.PauseHost(t)
	pauseCold(h, e, sb.ID)
	h.Close(e)
	file := filepath.Join(h.Cfg.StoreDir, "paused", sb.ID+".json")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{`"version":2`, `"version":1`}, {`"version":2`, `"version":3`},
		{`"Cold":true,`, ``}, {`"disks":[`, `"other":[`}, {`"overlay":""`, `"overlay":"/etc/passwd"`}} {
		text := strings.Replace(string(whole), change[0], change[1], 1)
		if text == string(whole) {
			t.Fatalf("the record has no %s: %s", change[0], whole)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		e = h.Open()
		if _, err := e.Get(sb.ID); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%q: %v", change, err)
		}
		if _, err := e.CollectLayers(t.Context(), false); err != nil {
			t.Error(err)
		}
		h.Close(e)
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	h.Resume(e, sb.ID)
}
