package idempotency

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A repetition that arrives during the first request waits for it.
func TestARepetitionWaits(t *testing.T) {
	for name, c := range map[string]struct {
		first *string
		runs  bool
	}{
		"and gets the first answer":     {new("made"), false},
		"and runs after a failed first": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cache Cache[string]
				_, end, err := cache.Begin("me", "k", []byte("body"), time.Now())
				if err != nil {
					t.Fatal(err)
				}
				joined := make(chan struct{})
				go func() {
					defer close(joined)
					answer, again, err := cache.Join(t.Context(), "me", "k", []byte("body"), time.Now)
					if err != nil || (again != nil) != c.runs || (answer != nil) == c.runs {
						t.Errorf("%v, runs %v, %v", answer, again != nil, err)
					}
				}()
				synctest.Wait()
				select {
				case <-joined:
					t.Error("the repetition did not wait")
				default:
				}
				end(c.first)
				<-joined
			})
		})
	}
}

func TestAWaitingRepetitionEndsWithItsClient(t *testing.T) {
	var cache Cache[string]
	if _, _, err := cache.Begin("me", "k", nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := cache.Join(ctx, "me", "k", nil, time.Now); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
