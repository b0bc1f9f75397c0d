package sched

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// quietAfter returns how long background work has to wait.
func quietAfter(t *testing.T, traffic *Traffic) time.Duration {
	t.Helper()
	began := time.Now()
	if err := traffic.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

func TestNobodyWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if d := quietAfter(t, &Traffic{}); d != 0 {
			t.Errorf("waited %s", d)
		}
	})
}

func TestAForkIsUnderWayUntilItsChildrenCanHaveBeenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var traffic Traffic
		traffic.Enter()
		traffic.LeaveSoon()
		if d := quietAfter(t, &traffic); d != untilAsked {
			t.Errorf("waited %s, want %s", d, untilAsked)
		}
	})
}

func TestAFirstAnswerIsWaitedForUntilItsLimit(t *testing.T) {
	for name, c := range map[string]struct{ takes, want time.Duration }{
		"a short one": {time.Second, time.Second},
		"a long one":  {time.Hour, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var traffic Traffic
				done := traffic.First(3 * time.Second)
				time.AfterFunc(c.takes, done)
				if d := quietAfter(t, &traffic); d != c.want {
					t.Errorf("waited %s, want %s", d, c.want)
				}
				time.Sleep(c.takes) // elapses: by then it has left, and once only
				traffic.Enter()
				if d := time.AfterFunc(time.Second, traffic.Leave); quietAfter(t, &traffic) != time.Second {
					t.Error("the next was not waited for", d)
				}
			})
		})
	}
}

func TestWhoIsTiredOfWaitingLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var traffic Traffic
		traffic.Enter()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := traffic.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
