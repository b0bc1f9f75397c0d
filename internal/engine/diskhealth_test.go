package engine_test

import (
	"io"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// A short lack of space ends no calls. A lasting one ends the running calls and breaks a stream
// into the guest.
func TestCallsUnderWayForWantOfRoom(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	id := h.Disky(e, 1)[0].ID
	conn, err := e.DialAgent(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hanging := make(chan error, 1)
	go func() {
		_, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "hang"})
		hanging <- err
	}()
	_, m, err := e.Table().Running(id)
	if err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "call", func() bool { return m.Calls() == 2 })
	seq := 0
	say := func(full string) {
		seq++
		m.NoteHealth(vmm.Health{Seq: seq, Full: full})
	}
	say("a short lack")
	say("")
	select {
	case err := <-hanging:
		t.Fatalf("the call has ended: %v", err)
	case <-time.After(vmproc.StallGrace + 200*time.Millisecond):
	}
	say("a long lack")
	enginefake.WantError(t, <-hanging, sandbox.ErrNoSpace, "paused: no room", "a long lack")
	_, err = io.ReadAll(conn)
	enginefake.WantError(t, err, sandbox.ErrNoSpace, "paused: no room", "a long lack")
	say("")
	if i, err := e.Get(id); err != nil || i.Status != sandbox.StatusRunning {
		t.Errorf("it does not run again: %+v, %v", i, err)
	}
	if _, err := e.Ping(t.Context(), id); err != nil {
		t.Error(err)
	}
}
