package op_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/leaf/failpoint"
)

// runDirs returns the names in the run directory: one VM each.
func runDirs(h *enginefake.Host) string {
	h.T.Helper()
	entries, err := os.ReadDir(filepath.Join(h.Cfg.RunDir, "vm"))
	if err != nil {
		h.T.Fatal(err)
	}
	var names []string
	for _, en := range entries {
		names = append(names, en.Name())
	}
	return strings.Join(names, " ")
}

// identityOf returns the identity a sandbox's guest received; its entropy comes last.
func identityOf(h *enginefake.Host, e *engine.Engine, id string) (same, entropy string) {
	h.T.Helper()
	for _, what := range []string{"sandbox_id", "machine_id", "index", "env"} {
		same += h.Eval(e, id, what) + "\n"
	}
	return same, h.Eval(e, id, "entropy")
}

func processGone(pid int) func() bool { return func() bool { return unix.Kill(pid, 0) != nil } }

// rollbackHost returns an engine with a snapshot "d", a sandbox of it with a disk, and a snapshot
// "b" branched from the sandbox.
func rollbackHost(t *testing.T) (*enginefake.Host, *engine.Engine, sandbox.Info) {
	t.Helper()
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Disky(e, 0)
	r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "d", N: 2, Env: map[string]string{"COLOUR": "red"}})
	if err != nil || r.Children[1].Err != nil {
		t.Fatal(err, r)
	}
	if err := e.Kill(t.Context(), r.Children[0].Info.ID); err != nil {
		t.Fatal(err)
	}
	sb := r.Children[1].Info
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"}); err != nil {
		t.Fatal(err)
	}
	return h, e, sb
}

func TestASandboxGoesBackInPlace(t *testing.T) {
	h, e, sb := rollbackHost(t)
	dirs, same, entropy := runDirs(h), "", ""
	same, entropy = identityOf(h, e, sb.ID)
	seen := map[string]bool{entropy: true}
	for _, tag := range []string{"b", "d", "b", "b"} {
		before, err := e.Get(sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		after, err := e.Rollback(t.Context(), sb.ID, tag)
		if err != nil {
			t.Fatal(err)
		}
		want := before
		want.PID, want.RolledBackTo, want.RolledBackHash = after.PID, tag, after.RolledBackHash
		if !reflect.DeepEqual(after, want) || after.PID == before.PID || after.RolledBackHash == "" {
			t.Errorf("it is now\n%+v, before it was\n%+v", after, before)
		}
		now, entropy := identityOf(h, e, sb.ID)
		if now != same || seen[entropy] {
			t.Errorf("identity %q, entropy %s; before it was %q", now, entropy, same)
		}
		seen[entropy] = true
		enginefake.Eventually(t, "end of the old VM", processGone(before.PID))
		if got := runDirs(h); got != dirs {
			t.Errorf("run directories are %s, before they were %s", got, dirs)
		}
		if own := strings.Fields(h.OverlayFiles()); len(own) != 1 {
			t.Errorf("overlay files: %q", own)
		}
		if c, err := e.Console(sb.ID); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
	}
	if !strings.Contains(same, "COLOUR:red") || !strings.Contains(same, "FORKD_PARENT:d") {
		t.Errorf("identity %q", same)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	h.Empty()
	if left := h.OverlayFiles(); left != "" {
		t.Errorf("left: %s", left)
	}
}

// A branch after a rollback is based on the snapshot of the rollback.
func TestABranchAfterARollback(t *testing.T) {
	h, e, sb := rollbackHost(t)
	if _, err := e.Rollback(t.Context(), sb.ID, "b"); err != nil {
		t.Fatal(err)
	}
	r, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "c", N: 1})
	if err != nil || r.Snapshot.ParentTag != "b" || r.Snapshot.ChainDepth() != 2 {
		t.Fatalf("%+v, %v", r.Snapshot, err)
	}
	if _, err := e.Rollback(t.Context(), sb.ID, "d"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Rollback(t.Context(), sb.ID, "c"); err != nil {
		t.Fatal(err)
	}
	// A child of the branch came from all three; a snapshot of the child is not in the source's
	// ancestry.
	child := r.Fork.Children[0].Info.ID
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: child, Tag: "of-child"}); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"d", "b", "c", "of-child"} {
		if _, err := e.Rollback(t.Context(), child, tag); err != nil {
			t.Errorf("child to %s: %v", tag, err)
		}
	}
	_, err = e.Rollback(t.Context(), sb.ID, "of-child")
	enginefake.WantError(t, err, sandbox.ErrConflict, "of-child", "b, c, d")
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "of-child", sandbox.DeleteOptions{}), sandbox.ErrConflict, child)
	// Each needs the snapshots it came from, and its base.
	if err := e.Kill(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	if err := e.DeleteSnapshot(t.Context(), "of-child", sandbox.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "c", sandbox.DeleteOptions{}), sandbox.ErrConflict, sb.ID)
	enginefake.WantError(t, e.DeleteSnapshot(t.Context(), "d", sandbox.DeleteOptions{Cascade: true}), sandbox.ErrConflict, sb.ID)
	h.KillAll()
}

func TestRollbacksThatAreRefused(t *testing.T) {
	h, e, sb := rollbackHost(t)
	h.Snapshot(e, "other")
	other := h.Fork(e, "other", 1)[0]
	for _, c := range []struct {
		id, tag string
		kind    error
		text    string
	}{
		{"sb-none", "d", sandbox.ErrNotFound, "sb-none"},
		{sb.ID, "../x", sandbox.ErrInvalid, "x"},
		{sb.ID, "nothing", sandbox.ErrNotFound, "valid snapshots: b, d"},
		{sb.ID, "other", sandbox.ErrConflict, "valid snapshots: b, d"},
		{other.ID, "b", sandbox.ErrConflict, "valid snapshots: other"},
	} {
		_, err := e.Rollback(t.Context(), c.id, c.tag)
		enginefake.WantError(t, err, c.kind, c.text)
	}
	// The tag of its origin may have been reused.
	if err := e.DeleteSnapshot(t.Context(), "other", sandbox.DeleteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // elapses: the new one is of another moment
	h.Snapshot(e, "other")
	_, err := e.Rollback(t.Context(), other.ID, "other")
	enginefake.WantError(t, err, sandbox.ErrConflict, "no snapshot of its ancestry is left")
	if err := unix.Kill(other.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "failure", enginefake.Failed(e, other.ID))
	_, err = e.Rollback(t.Context(), other.ID, "other")
	enginefake.WantError(t, err, sandbox.ErrGuestGone, other.ID)
}

// On every failure the sandbox keeps running unchanged, and no files remain.
func TestARollbackThatFails(t *testing.T) {
	for fault, text := range map[string]string{
		"spawn":          "no KVM today",
		"restore-fail":   "KVM said no",
		"restore-die":    "its VM has ended: ",
		"restore-hang":   "restore timed out after",
		"identity-clone": "random state was not reseeded",
		"identity-die":   "kernel panicked: out of luck",
		"identity-hang":  "guest did not confirm its identity after",
		"status-exited":  "exchange: the new VM is exited",
		"status-die":     "its VM has ended: ",
		"status-hang":    "the new VM timed out after",
	} {
		t.Run(fault, func(t *testing.T) {
			h := enginefake.NewHost(t)
			h.Cfg.IdentityTimeout, h.Cfg.RestoreTimeout = time.Second, time.Second
			e := h.Open()
			sb := h.Disky(e, 1)[0]
			dirs, own := runDirs(h), h.OverlayFiles()
			h.Fault(fault, 1)
			_, err := e.Rollback(t.Context(), sb.ID, "d")
			enginefake.WantError(t, err, enginefake.ErrAny, text, sb.ID)
			now, err := e.Get(sb.ID)
			if err != nil || !reflect.DeepEqual(now, sb) {
				t.Errorf("it is now %+v, %v; before it was %+v", now, err, sb)
			}
			if got := h.Eval(e, sb.ID, "sandbox_id"); got != sb.ID {
				t.Errorf("it says that it is %q", got)
			}
			if d, o := runDirs(h), h.OverlayFiles(); d != dirs || o != own {
				t.Errorf("run directories %s, overlay files %s; before: %s, %s", d, o, dirs, own)
			}
			if _, err := e.Rollback(t.Context(), sb.ID, "d"); err != nil {
				t.Errorf("after all that: %v", err)
			}
		})
	}
}

// newVM returns the process that is neither the sandbox's nor a shell's: the VM of a running
// rollback. A host without pools has no other VMs.
func newVM(h *enginefake.Host, sb sandbox.Info) int {
	h.T.Helper()
	for _, pid := range h.Journalled() {
		if pid != sb.PID {
			return pid
		}
	}
	h.T.Fatal("there is no other VM")
	return 0
}

// at calls do when this process passes a step.
func at(t *testing.T, step failpoint.Step, do func()) {
	t.Helper()
	t.Cleanup(failpoint.Set(func(s failpoint.Step) error {
		if s == step {
			do()
		}
		return nil
	}))
}

// A new VM that has confirmed and is killed before the exchange does not affect the sandbox.
func TestANewVMThatIsKilledBeforeTheExchange(t *testing.T) {
	for _, step := range []failpoint.Step{failpoint.RollbackConfirmed, failpoint.RollbackRecorded} {
		t.Run(string(step), func(t *testing.T) {
			h, e, sb := rollbackHost(t)
			dirs, own := runDirs(h), h.OverlayFiles()
			at(t, step, func() { unix.Kill(newVM(h, sb), unix.SIGKILL) })
			_, err := e.Rollback(t.Context(), sb.ID, "b")
			enginefake.WantError(t, err, sandbox.ErrGuestGone, sb.ID, "killed")
			if now, err := e.Get(sb.ID); err != nil || !reflect.DeepEqual(now, sb) {
				t.Errorf("it is now %+v, %v; before it was %+v", now, err, sb)
			}
			if got := h.Eval(e, sb.ID, "sandbox_id"); got != sb.ID {
				t.Errorf("it says that it is %q", got)
			}
			if d, o := runDirs(h), h.OverlayFiles(); d != dirs || o != own {
				t.Errorf("run directories %s, overlay files %s; before: %s, %s", d, o, dirs, own)
			}
		})
	}
}

// A new VM that is killed after the exchange is the sandbox's VM, and ends like any other.
func TestANewVMThatIsKilledAfterTheExchange(t *testing.T) {
	h, e, sb := rollbackHost(t)
	at(t, failpoint.RollbackExchanged, func() { unix.Kill(newVM(h, sb), unix.SIGKILL) })
	if _, err := e.Rollback(t.Context(), sb.ID, "b"); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "failure", enginefake.Failed(e, sb.ID))
	now := enginefake.MustGet(t, e, sb.ID)
	if !strings.Contains(now.Reason, "killed") || now.RolledBackTo != "b" {
		t.Errorf("it is now %+v", now)
	}
	enginefake.Eventually(t, "end of the old VM", processGone(sb.PID))
	if d, o := strings.Fields(runDirs(h)), strings.Fields(h.OverlayFiles()); len(d) != 1 || len(o) != 1 {
		t.Errorf("run directories %q, overlay files %q", d, o)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	h.Empty()
	if left := h.OverlayFiles(); left != "" {
		t.Errorf("overlay files left: %s", left)
	}
}

func TestACancelledRollbackChangesNothing(t *testing.T) {
	h, e, sb := rollbackHost(t)
	dirs := runDirs(h)
	wish := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	at(t, failpoint.RollbackConfirmed, func() { cancel(wish) })
	_, err := e.Rollback(ctx, sb.ID, "b")
	enginefake.WantError(t, err, wish)
	if now, _ := e.Get(sb.ID); !reflect.DeepEqual(now, sb) || runDirs(h) != dirs {
		t.Errorf("it is now %+v in %s", now, runDirs(h))
	}
}

func TestWhatRunsInARolledBackSandboxEndsWithAnError(t *testing.T) {
	h, e, sb := rollbackHost(t)
	h.Fault("exec-hangs", 1)
	got := make(chan error, 1)
	go func() {
		_, err := e.Exec(t.Context(), sb.ID, sandbox.ExecRequest{Args: []string{"hang"}})
		got <- err
	}()
	enginefake.Eventually(t, "the program to run", h.UsedUp("exec-hangs"))
	if _, err := e.Rollback(t.Context(), sb.ID, "b"); err != nil {
		t.Fatal(err)
	}
	enginefake.WantError(t, <-got, sandbox.ErrGuestGone, sb.ID, "rolled back to snapshot b")
}

// A rollback does not wait for the new VM of a sandbox that is killed.
func TestAKillEndsARollback(t *testing.T) {
	h, e, sb := rollbackHost(t)
	h.Fault("identity-hang", 1)
	used := h.UsedUp("identity-hang")
	got := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := e.Rollback(t.Context(), sb.ID, "b")
		got <- err
	}()
	enginefake.Eventually(t, "new VM that hangs", used)
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	enginefake.WantError(t, <-got, sandbox.ErrConflict, sb.ID, "killed during the request")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	h.Empty()
	if left := h.OverlayFiles(); left != "" {
		t.Errorf("overlay files left: %s", left)
	}
}

// Branch, rollback and kill of one sandbox take turns. In any order, no files are left over.
func TestARollbackAmongOthers(t *testing.T) {
	for round := range 6 {
		h, e, sb := rollbackHost(t)
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				_, err := e.Rollback(t.Context(), sb.ID, "b")
				allow(t, err)
			})
			wg.Go(func() {
				_, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: fmt.Sprint("x", i)})
				allow(t, err)
			})
		}
		wg.Go(func() {
			time.Sleep(time.Duration(round) * 20 * time.Millisecond) // elapses: the kill comes at another moment in each round
			if err := e.Kill(t.Context(), sb.ID); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if l := e.List(); len(l) != 0 {
			t.Errorf("listed: %+v", l)
		}
		h.Empty()
		if left := h.OverlayFiles(); left != "" {
			t.Errorf("overlay files left: %s", left)
		}
	}
}

// allow accepts the possible results of an operation on a sandbox that is killed meanwhile.
func allow(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrConflict) || errors.Is(err, sandbox.ErrGuestGone) {
		return
	}
	t.Error(err)
}

func TestARolledBackSandboxOutlivesTheDaemon(t *testing.T) {
	h, e, sb := rollbackHost(t)
	info, err := e.Rollback(t.Context(), sb.ID, "b")
	if err != nil {
		t.Fatal(err)
	}
	same, _ := identityOf(h, e, sb.ID)
	own := h.OverlayFiles()
	h.Close(e)
	e = h.Open()
	if now, err := e.Get(sb.ID); err != nil || now.PID != info.PID || now.RolledBackTo != "b" || now.Status != sandbox.StatusRunning {
		t.Fatalf("it is now %+v, %v", now, err)
	}
	if got, _ := identityOf(h, e, sb.ID); got != same || h.OverlayFiles() != own {
		t.Errorf("identity %q, overlay files %s; before %q, %s", got, h.OverlayFiles(), same, own)
	}
	h.Fork(e, "d", 4) // none of them gets its disk's name
	if _, err := e.Rollback(t.Context(), sb.ID, "d"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(enginefake.MustGet(t, e, sb.ID).PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "failure", enginefake.Failed(e, sb.ID))
}

// doomedToRollBack is the work of a daemon that is killed at one of its steps.
func doomedToRollBack(ctx context.Context, e *engine.Engine, _ engine.Config) error {
	if _, err := e.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: "d", Image: "disky"}, nil); err != nil {
		return err
	}
	r, err := e.Fork(ctx, sandbox.ForkRequest{Tag: "d", N: 1})
	if err != nil {
		return err
	}
	id := r.Children[0].Info.ID
	if _, err := e.Branch(ctx, sandbox.BranchRequest{SandboxID: id, Tag: "b"}); err != nil {
		return err
	}
	_, err = e.Rollback(ctx, id, "b")
	return err
}

// After a daemon is killed at any step, the next one has exactly one of the two VMs, and no other
// files.
func TestADaemonThatIsKilledDuringARollback(t *testing.T) {
	for _, c := range []struct {
		step failpoint.Step
		base string
	}{
		{failpoint.RollbackBegun, ""}, {failpoint.RollbackRestored, ""}, {failpoint.RollbackConfirmed, ""}, {failpoint.RollbackRecorded, ""},
		{failpoint.RollbackExchanged, "b"},
	} {
		t.Run(string(c.step), func(t *testing.T) {
			h := enginefake.NewHost(t)
			h.MakeUpper()
			enginefake.KillDaemonAt(h, "roll back", string(c.step))
			pids := h.Journalled()
			e := h.Open()
			l := e.List()
			if len(l) != 1 || l[0].Status != sandbox.StatusRunning || l[0].RolledBackTo != c.base {
				t.Fatalf("listed: %+v", l)
			}
			if got := h.Eval(e, l[0].ID, "sandbox_id"); got != l[0].ID {
				t.Errorf("it says that it is %q", got)
			}
			for _, pid := range pids {
				if pid != l[0].PID {
					enginefake.Eventually(t, "end of the other VM", processGone(pid))
				}
			}
			if d, o := strings.Fields(runDirs(h)), strings.Fields(h.OverlayFiles()); len(d) != 1 || len(o) != 1 {
				t.Errorf("run directories %q, overlay files %q", d, o)
			}
			if _, err := e.Rollback(t.Context(), l[0].ID, "d"); err != nil {
				t.Error(err)
			}
		})
	}
}
