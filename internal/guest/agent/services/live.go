package services

import (
	"context"
	"fmt"
	"time"

	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// A guest can stand still for any time: in a pause, in a branch, or while its memory arrives. Its clock may go on
// meanwhile. So a limit of time counts steps, of which a jump of the clock takes one, and a check that a wake
// interrupted does not count.

// steps is the number of steps of a limited time.
const steps = 8

// clock returns a channel that receives after a time. It is time.After except in tests.
type clock func(time.Duration) <-chan time.Time

// patient returns a context that is cancelled with cause after a time of the guest at work.
func (after clock) patient(ctx context.Context, limit time.Duration, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends with the context
		for range steps {
			select {
			case <-ctx.Done():
				return
			case <-after(limit / steps):
			}
		}
		cancel(cause)
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// Woke says that the guest has a new identity: it was forked, resumed or rolled back. Checks begin to count again.
func (s *Supervisor) Woke() { s.wakes.Add(1) }

// liveness checks a service that is ready.
type liveness struct {
	servicespec.Liveness
	after clock
	try   func(context.Context) error
	wakes func() int64 // number of wakes until now
}

func livenessOf(s *Supervisor, spec servicespec.Spec) liveness {
	limit := orDefault(spec.Liveness.TimeoutMS, servicespec.DefaultLivenessTimeout)
	try := func(ctx context.Context) error { return s.try(ctx, spec, limit) }
	return liveness{spec.Liveness, s.after, try, s.wakes.Load}
}

// run checks until the check has failed several times in a row, or ctx ends. There is one check at a time.
func (l liveness) run(ctx context.Context) error {
	failures, most := 0, l.FailureThreshold
	if most == 0 {
		most = servicespec.DefaultFailures
	}
	for woken := l.wakes(); ; {
		select {
		case <-ctx.Done():
			return context.Canceled
		case <-l.after(orDefault(l.IntervalMS, servicespec.DefaultLivenessInterval)):
		}
		if now := l.wakes(); now != woken {
			woken, failures = now, 0
		}
		err := l.try(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Canceled
		case err == nil || l.wakes() != woken:
			failures = 0
			continue
		}
		if failures++; failures >= most {
			return fmt.Errorf("its check failed %d times in a row: %s", failures, servicespec.ClipError(err))
		}
	}
}
