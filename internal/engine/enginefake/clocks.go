package enginefake

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
)

// Clocks holds a host's clocks: the wall clock, which can be set, and a monotonic clock.
type Clocks struct {
	mu      sync.Mutex
	Wall    time.Time
	elapsed time.Duration
}

// Pass lets time pass on both clocks.
func (c *Clocks) Pass(d time.Duration) { c.Set(d, d) }

// Set moves the wall clock and the monotonic clock.
func (c *Clocks) Set(wall, elapsed time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Wall, c.elapsed = c.Wall.Add(wall), c.elapsed+elapsed
}

// Now is the wall clock, for Config.Now.
func (c *Clocks) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Wall
}

// Since is the clock that no step moves, for Config.Elapsed.
func (c *Clocks) Since() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

// LifeHost returns a host with clocks controlled by the test, an engine, and a snapshot "a".
func LifeHost(t *testing.T) (*Host, *engine.Engine, *Clocks) {
	t.Helper()
	h := NewHost(t)
	c := &Clocks{Wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	h.Cfg.Now, h.Cfg.Elapsed = c.Now, c.Since
	e := h.Open()
	h.Snapshot(e, "a")
	return h, e, c
}

// ForkFor makes a child of snapshot "a" with that life.
func (h *Host) ForkFor(e *engine.Engine, l sandbox.Life) sandbox.Info {
	h.T.Helper()
	r, err := e.Fork(h.T.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Life: l})
	if err != nil || r.Children[0].Err != nil {
		h.T.Fatal(err, r)
	}
	return r.Children[0].Info
}

// StatusOf returns a sandbox's status after all due actions. It is empty if the sandbox is gone.
// The engine also checks its sandboxes in the background.
func StatusOf(h *Host, e *engine.Engine, id string) sandbox.Status {
	h.T.Helper()
	e.Look(h.T.Context())
	for {
		info, err := e.Get(id)
		switch {
		case errors.Is(err, sandbox.ErrNotFound):
			return ""
		case err != nil:
			h.T.Fatal(err)
		case info.Status == sandbox.StatusPausing:
			time.Sleep(time.Millisecond) // elapses: the engine's own look has it
			continue
		}
		return info.Status
	}
}
