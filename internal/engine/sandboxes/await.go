package sandboxes

import (
	"context"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Waits limits the requests waiting for a sandbox's branch, rollback, pause or resume to end.
type Waits struct {
	PerSandbox int           // maximum number waiting for one sandbox
	PerTenant  int           // maximum number waiting for all sandboxes of a tenant
	Time       time.Duration // maximum waiting time of a request
}

// complete sets zero fields to their defaults.
func (w Waits) complete() Waits {
	if w.PerSandbox == 0 {
		w.PerSandbox = 200
	}
	if w.PerTenant == 0 {
		w.PerTenant = 1000
	}
	if w.Time == 0 {
		w.Time = 5 * time.Minute
	}
	return w
}

// waiting counts the waiting requests. It is guarded by Table.mu.
type waiting struct{ sandboxes, tenants map[string]int }

func newWaiting() waiting { return waiting{map[string]int{}, map[string]int{}} }

// Await is like Turn, for a client's request. It returns ErrBusy if too many requests wait already,
// or if its time is up.
func (s *Sandbox) Await(ctx context.Context) (leave func(), err error) {
	turn := s.turns()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	default:
	}
	t := s.table
	done, err := s.beginWait()
	if err != nil {
		return nil, err
	}
	defer done()
	slow := sandbox.Errorf(sandbox.ErrBusy, sandbox.ReasonTransitionSlow,
		"sandbox %s was still being paused, resumed or branched after %s", s.id, t.waits.Time)
	ctx, cancel := context.WithTimeoutCause(ctx, t.waits.Time, sandbox.Detailed(slow, "sandbox", s.id))
	defer cancel()
	return s.Turn(ctx)
}

// beginWait counts a waiting request until done is called.
func (s *Sandbox) beginWait() (done func(), err error) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	owner := s.info.Owner
	switch {
	case t.waiting.sandboxes[s.id] >= t.waits.PerSandbox:
		return nil, sandbox.Errorf(sandbox.ErrBusy, sandbox.ReasonTransitionBusy,
			"%d requests already wait for sandbox %s to be paused, resumed or branched", t.waits.PerSandbox, s.id)
	case t.waiting.tenants[owner] >= t.waits.PerTenant:
		return nil, sandbox.Errorf(sandbox.ErrBusy, sandbox.ReasonTransitionBusy,
			"%d requests already wait for sandboxes of this tenant to be paused, resumed or branched", t.waits.PerTenant)
	}
	t.waiting.sandboxes[s.id]++
	t.waiting.tenants[owner]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		release(t.waiting.sandboxes, s.id)
		release(t.waiting.tenants, owner)
	}, nil
}

// release decrements a count and deletes the entry at zero.
func release(counts map[string]int, key string) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}

// Settle waits for a sandbox being paused or resumed, and returns its state afterwards. It does not
// wait for other operations.
func Settle(ctx context.Context, t *Table, id string) (sandbox.Info, error) {
	s, info, err := t.Find(id)
	if err != nil || !info.InTransition() {
		return info, err
	}
	leave, err := s.Await(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer leave()
	_, info, err = t.Find(id)
	return info, err
}
