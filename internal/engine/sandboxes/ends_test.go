package sandboxes_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

func TestAVMThatEndsByItselfIsFailedWithTheReason(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sbs := h.Fork(e, "a", 3)
	if err := unix.Kill(sbs[0].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "failure of the killed one", enginefake.Failed(e, sbs[0].ID))
	_, err := e.Eval(t.Context(), sbs[1].ID, sandbox.EvalRequest{Code: "poweroff"})
	enginefake.WantError(t, err, sandbox.ErrGuestGone, sbs[1].ID, "powered off")
	enginefake.Eventually(t, "failure of the one that powered off", enginefake.Failed(e, sbs[1].ID))

	for i, want := range []string{"signal: killed", "powered off"} {
		info, err := e.Get(sbs[i].ID)
		if err != nil || !strings.Contains(info.Reason, want) || info.PID != 0 {
			t.Errorf("pid %d, reason %q, want none, %q", info.PID, info.Reason, want)
		}
		_, err = e.Ping(t.Context(), sbs[i].ID)
		enginefake.WantError(t, err, sandbox.ErrGuestGone, want)
		_, err = e.Memory(sbs[i].ID)
		enginefake.WantError(t, err, sandbox.ErrGuestGone)
		c, err := e.Console(sbs[i].ID)
		if err != nil {
			t.Errorf("console of a failed one: %v", err)
		} else {
			c.Close()
		}
		if err := e.Kill(t.Context(), sbs[i].ID); err != nil {
			t.Error(err)
		}
	}
	if p, err := e.Ping(t.Context(), sbs[2].ID); err != nil || p.NumpyVersion != "2.0" || p.PID != 1 {
		t.Errorf("the other one: %+v, %v", p, err)
	}
	if l := e.List(); len(l) != 1 {
		t.Errorf("listed: %v", l)
	}
}

func TestFailedSandboxesExpire(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Cfg.FailedKeep = 50 * time.Millisecond
	e := h.Open()
	h.Snapshot(e, "a")
	sb := h.Fork(e, "a", 1)[0]
	if err := unix.Kill(sb.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "end of the list", func() bool { return len(e.List()) == 0 })
	h.Empty()
}

func TestTwoClientsKillTheSameSandbox(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := h.Fork(e, "a", 1)[0]
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			errs[i] = e.Kill(t.Context(), sb.ID)
			// At every return it is gone.
			if unix.Kill(sb.PID, 0) == nil {
				t.Errorf("caller %d returned before the process was gone", i)
			}
		})
	}
	wg.Wait()
	ok := 0
	for _, err := range errs {
		if err == nil {
			ok++
			continue
		}
		enginefake.WantError(t, err, sandbox.ErrNotFound)
	}
	if ok == 0 {
		t.Error("nobody killed it")
	}
	enginefake.WantError(t, e.Kill(t.Context(), sb.ID), sandbox.ErrNotFound, sb.ID)
	_, err := e.Get(sb.ID)
	enginefake.WantError(t, err, sandbox.ErrNotFound)
	h.Empty()
}

func TestMemoryOfASandbox(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	id := h.Fork(e, "a", 1)[0].ID
	m, err := e.Memory(id)
	if err != nil {
		t.Fatal(err)
	}
	if m.GuestDirtyKiB != 20 || m.VMMAnonKiB == 0 || m.PSSKiB < m.VMMAnonKiB {
		t.Errorf("got %+v, want 20 KiB of guest pages", m)
	}
	if err := e.DeleteSnapshot(t.Context(), "a", sandbox.DeleteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if m, err = e.Memory(id); err != nil || m.GuestDirtyKiB != 20 {
		t.Errorf("after the snapshot's deletion: %+v, %v", m, err)
	}
}

func TestHalfMadeChildrenOfADeadDaemonAreCleared(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	sb := h.Fork(e, "a", 1)[0]
	dir, _ := h.Journal(sb.ID)
	h.Close(e)
	// As if the daemon had died before the identity was confirmed.
	if err := os.Remove(filepath.Join(dir, vmproc.SandboxJournal)); err != nil {
		t.Fatal(err)
	}
	e = h.Open()
	if l := e.List(); len(l) != 0 {
		t.Errorf("listed: %v", l)
	}
	h.Empty()
	enginefake.Eventually(t, "end of its process", func() bool { return unix.Kill(sb.PID, 0) != nil })
}
