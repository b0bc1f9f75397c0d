package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/guest"
)

// Traffic does not wake a sandbox stalled for lack of disk space.
func TestTrafficDoesNotWakeWhatHasNoRoom(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	sbs := h.Disky(e, 2)
	id := sbs[0].ID
	asked := 0
	calls := guest.New(guest.Config{Sandboxes: e.Table(), Wake: func(_ context.Context, of string) (bool, error) {
		if asked++; of != id {
			t.Errorf("asked for %s", of)
		}
		return true, nil
	}})
	other := errors.New("it sleeps")
	if woken, err := calls.Wake(t.Context(), id, other); woken || err != nil {
		t.Errorf("one that runs: %v, %v", woken, err)
	}
	enginefake.Fill(h, e, id)
	_, noRoom := e.DialPort(t.Context(), id, 80)
	if woken, err := calls.Wake(t.Context(), id, noRoom); woken || err != nil || asked != 0 {
		t.Errorf("one without room: %v, %v, asked %d times", woken, err, asked)
	}
	if woken, err := e.Wake(t.Context(), id, other); woken || err != nil {
		t.Errorf("nobody can wake it: %v, %v", woken, err)
	}
	id = sbs[1].ID
	h.Pause(e, id)
	if woken, err := calls.Wake(t.Context(), sandbox.DNSID(id), other); !woken || err != nil || asked != 1 {
		t.Errorf("one that is paused otherwise: %v, %v, asked %d times", woken, err, asked)
	}
}
