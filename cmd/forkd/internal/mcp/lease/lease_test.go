package lease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"
)

// daemon ends sandboxes when their time has passed, as forkd's daemon does.
type daemon struct {
	mu     sync.Mutex
	ends   map[string]time.Time // zero: never
	broken bool
}

func (d *daemon) SetTTL(_ context.Context, id string, ttl time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return errors.New("no daemon answers")
	}
	if !d.existsLocked(id) {
		return errors.New("not found")
	}
	d.ends[id] = time.Time{}
	if ttl > 0 {
		d.ends[id] = time.Now().Add(ttl)
	}
	return nil
}

func (d *daemon) Kill(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.ends, id)
	return nil
}

func (d *daemon) Exists(_ context.Context, id string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return false, errors.New("no daemon answers")
	}
	return d.existsLocked(id), nil
}

func (d *daemon) existsLocked(id string) bool {
	end, ok := d.ends[id]
	return ok && (end.IsZero() || time.Now().Before(end))
}

// holder returns a holder that has the named sandboxes.
func holder(t *testing.T, c Config, grant func(*Holder) Grant, ids ...string) (*Holder, *daemon) {
	t.Helper()
	d := &daemon{ends: map[string]time.Time{}}
	c.Daemon, c.Log = d, slog.New(slog.DiscardHandler)
	h := New(c)
	for _, id := range ids {
		g := grant(h)
		d.ends[id] = time.Time{}
		if err := d.SetTTL(t.Context(), id, g.TTL); err != nil || !h.Add(id, g) {
			t.Fatalf("%s: %v", id, err)
		}
	}
	return h, d
}

func plain(h *Holder) Grant { return h.Grant(0, false) }

func TestALeaseIsRenewedWhileTheSessionLives(t *testing.T) {
	h, d := holder(t, Config{TTL: 300 * time.Millisecond}, plain, "a")
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	time.Sleep(time.Second) // elapses: three times the TTL
	if there, _ := d.Exists(ctx, "a"); !there {
		t.Error("the sandbox ended although the session lives")
	}
	stop() // as a kill of the server
	running.Wait()
	time.Sleep(400 * time.Millisecond) // elapses: the TTL
	if there, _ := d.Exists(t.Context(), "a"); there {
		t.Error("the sandbox runs although nothing renews its lease")
	}
}

func TestADaemonThatIsGoneForAMomentEndsNoLease(t *testing.T) {
	h, d := holder(t, Config{TTL: time.Hour}, plain, "a")
	d.broken = true
	h.Renew(t.Context())
	d.broken = false
	if got := h.IDs(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the session has %q", got)
	}
	d.Kill(t.Context(), "a")
	h.Renew(t.Context())
	if got := h.IDs(); len(got) != 0 {
		t.Errorf("the session has %q, which ended", got)
	}
}

func TestTheEndLeavesKeptSandboxes(t *testing.T) {
	h, d := holder(t, Config{TTL: time.Hour}, plain, "a", "b")
	if end, err := h.Keep(t.Context(), "b"); err != nil || !end.IsZero() || !d.ends["b"].IsZero() {
		t.Errorf("kept until %v, %v", end, err)
	}
	h.Renew(t.Context())
	if n, err := h.End(t.Context()); n != 1 || err != nil {
		t.Errorf("ended %d, %v", n, err)
	}
	if len(d.ends) != 1 || !d.ends["b"].IsZero() {
		t.Errorf("left are %v", d.ends)
	}
	if h.Add("late", plain(h)) {
		t.Error("a sandbox was added after the end")
	}
	if _, err := h.Keep(t.Context(), "other"); err == nil {
		t.Error("a sandbox of another session was kept")
	}
}

func TestLifetimesAreBounded(t *testing.T) {
	h := New(Config{TTL: time.Minute, MaxLifetime: time.Hour})
	for _, c := range []struct {
		asked time.Duration
		keep  bool
		want  time.Duration
	}{
		{0, false, time.Minute}, {10 * time.Second, false, 10 * time.Second}, {2 * time.Hour, false, time.Minute},
		{0, true, time.Hour}, {2 * time.Hour, true, time.Hour}, {time.Second, true, time.Second},
	} {
		if got := h.Grant(c.asked, c.keep).TTL; got != c.want {
			t.Errorf("asked for %s, keep %v: %s, want %s", c.asked, c.keep, got, c.want)
		}
	}
	if got := New(Config{TTL: time.Minute}).Grant(0, true).TTL; got != 0 {
		t.Errorf("without a limit a kept one has %s", got)
	}
}

// A renewal gives no more than what is left of the lifetime.
func TestARenewalEndsWithTheLifetime(t *testing.T) {
	h, d := holder(t, Config{TTL: time.Hour}, func(h *Holder) Grant { return h.Grant(10*time.Second, false) }, "a")
	h.Renew(t.Context())
	if left := time.Until(d.ends["a"]); left > 10*time.Second {
		t.Errorf("it has %s left", left)
	}
}

func TestTheLimitCountsSandboxesInCreation(t *testing.T) {
	h, d := holder(t, Config{TTL: time.Hour, Max: 3}, plain, "a", "b")
	done, err := h.Reserve(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var many TooManyError
	if _, err := h.Reserve(t.Context(), 1); !errors.As(err, &many) || many.Have != 3 {
		t.Errorf("beyond the limit: %v", err)
	}
	done()
	d.Kill(t.Context(), "a") // by somebody else: its room is free
	if _, err := h.Reserve(t.Context(), 2); err != nil {
		t.Error(err)
	}
}

func TestAnIdleSessionIsNotRenewed(t *testing.T) {
	h, d := holder(t, Config{TTL: time.Hour, Idle: time.Millisecond}, plain, "a")
	before := d.ends["a"]
	busy := h.Use()
	time.Sleep(5 * time.Millisecond) // elapses: the idle limit
	h.Renew(t.Context())
	if d.ends["a"].Equal(before) {
		t.Error("a session with a call in progress was not renewed")
	}
	busy()
	before = d.ends["a"]
	time.Sleep(5 * time.Millisecond) // elapses: the idle limit
	h.Renew(t.Context())
	if !d.ends["a"].Equal(before) {
		t.Error("an idle session was renewed")
	}
}
