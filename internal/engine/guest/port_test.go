package guest_test

import (
	"errors"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

// echoServer returns all data from a client to it once the client has sent everything. It is in
// this process; the fake's guests have the same localhost.
func echoServer(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, _ := io.ReadAll(c)
				_, _ = c.Write(b)
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestPortsInGuestsAreDialled(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	port := echoServer(t)
	for _, i := range h.Fork(e, "a", 2) {
		c, err := e.DialPort(t.Context(), sandbox.DNSID(i.ID), port) // by its other name
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "to "+i.ID); err != nil {
			t.Fatal(err)
		}
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); err != nil || string(b) != "to "+i.ID {
			t.Errorf("got %q, %v", b, err)
		}
	}
}

func wantReason(t *testing.T, err error, reason sandbox.Reason) *sandbox.Error {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Reason() != reason {
		t.Errorf("got %v, want an error of reason %s", err, reason)
		return &sandbox.Error{}
	}
	return e
}

func TestPortsThatCannotBeDialled(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	id := h.Fork(e, "a", 1)[0].ID
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := uint16(l.Addr().(*net.TCPAddr).Port)
	l.Close()

	_, err = e.DialPort(t.Context(), id, closed)
	enginefake.WantError(t, err, sandbox.ErrPortClosed, "no server listens on port", id)
	if d := wantReason(t, err, sandbox.ReasonPortRefused).Details(); d["port"] != strconv.Itoa(int(closed)) || d["sandbox"] != id {
		t.Errorf("details are %v", d)
	}
	_, err = e.DialPort(t.Context(), "sb-none", 80)
	enginefake.WantError(t, err, sandbox.ErrNotFound)
	_, err = e.DialPort(t.Context(), id, 0)
	enginefake.WantError(t, err, sandbox.ErrInvalid)

	h.Fault("older", 1)
	old := h.Fork(e, "a", 1)[0].ID
	_, err = e.DialPort(t.Context(), old, 80)
	enginefake.WantError(t, err, sandbox.ErrConflict, "older forkd", "rebuild its snapshot")
	wantReason(t, err, sandbox.ReasonAgentOld)

	e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "poweroff"})
	enginefake.Eventually(t, "failed sandbox", func() bool {
		i, err := e.Get(id)
		return err == nil && i.Status == sandbox.StatusFailed
	})
	_, err = e.DialPort(t.Context(), id, 80)
	wantReason(t, err, sandbox.ReasonSandboxFailed)
}

// A stream to a server in a guest that a pause or a rollback cuts off ends with an error, not as if
// the server had closed it, also after the sandbox runs again.
func TestAStreamThatAPauseCutsOff(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	port := echoServer(t)
	sbs := h.Fork(e, "a", 2)
	var streams []net.Conn
	for _, i := range sbs {
		c, err := e.DialPort(t.Context(), i.ID, port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "half a request"); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, c)
	}
	h.Pause(e, sbs[0].ID)
	if _, err := e.Resume(t.Context(), sbs[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Rollback(t.Context(), sbs[1].ID, "a"); err != nil {
		t.Fatal(err)
	}
	for n, reason := range []sandbox.Reason{sandbox.ReasonSandboxPaused, sandbox.ReasonSandboxRolledBack} {
		_, err := io.ReadAll(streams[n])
		wantReason(t, err, reason)
	}
}
